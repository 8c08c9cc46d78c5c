//! Clusters by name: start or find, stop, list, sweep.
//!
//! A root folder holds one folder for each cluster. Whoever comes first starts its supervisor, all others find it. Runs
//! share a root and have their key in the clusters' names, so that the next run finds what a killed one has left.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use buffer_client::chain;
use rustix::{fs::FlockOperation, process::Signal};

use crate::{
    Error, ServeConfig,
    binaries::{Progress, Sources, prepare, release},
    config::{Ground, Job},
    control::{self, ChildState, Request},
    files::{self, Lock, home_dir, private_dir, publish_first, read_json, tail},
    kind, process,
    supervisor::{GONE, Ready, discard},
};

/// The arguments before the folder with which a program is asked to be a supervisor.
pub const SUBCOMMAND: [&str; 2] = ["cluster", "serve"];

/// How long a start may take once the binaries are there.
const START_PATIENCE: Duration = Duration::from_mins(3);
/// How long a started supervisor may take to take its lock before it is started again.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// How often a supervisor is started before that counts as hopeless.
const LAUNCHES: u32 = 3;
/// How long an orderly end may take before the supervisor is killed.
const STOP_PATIENCE: Duration = Duration::from_secs(30);
/// How old a folder without a supervisor must be before it counts as left behind by a start that was interrupted.
const ABANDONED: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(20);
/// How often somebody who uses a cluster looks whether it is still there.
const LOOK: Duration = Duration::from_millis(200);

/// A cluster that is up.
#[derive(Debug, Clone)]
pub struct Running {
    /// Its folder.
    pub dir: PathBuf,
    /// What its supervisor says of it.
    pub ready: Ready,
}

impl Running {
    /// The admin's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.ready.kubeconfig
    }

    /// The API server's audit log: one JSON line for each write. A kind cluster has none.
    #[must_use]
    pub fn audit_log(&self) -> PathBuf {
        self.dir.join("audit.log")
    }

    /// The kind cluster that it is, if it is one.
    pub fn kind(&self) -> Result<Option<String>, Error> {
        let job: Option<Job> = read_json(&self.dir.join("config.json"))?;
        Ok(job.and_then(|job| job.cluster.kind).map(|kind| kind.name))
    }

    /// Asks the supervisor for something; blocks until it is done.
    pub fn request(&self, request: &Request) -> Result<BTreeMap<String, ChildState>, Error> {
        control::request(&self.dir, request)
    }

    /// Waits until the supervisor has ended, and with it everything that runs on the cluster.
    pub async fn ended(&self) -> Result<(), Error> {
        let failed = |error| Error::io("watching", &self.dir)(error);
        let Some(handle) = process::handle(self.ready.supervisor).map_err(failed)? else { return Ok(()) };
        // tokio has no safe way to wait for a handle that it did not make, and a thread would outlive this call.
        while !process::wait(&handle, Some(Duration::ZERO)).map_err(failed)? {
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }
}

/// What is under a cluster's name.
#[derive(Debug, Clone)]
pub enum State {
    /// No folder.
    Absent,
    /// A folder that no supervisor has taken yet.
    New,
    /// A supervisor is at work, the cluster is not up yet.
    Starting,
    /// It is up.
    Ready(Box<Ready>),
    /// It could not be started; why.
    Failed(String),
    /// Left behind by a supervisor that was killed.
    Stale,
}

/// The root folder of clusters that people start by name: `$XDG_STATE_HOME/bufconf/clusters`, else
/// `~/.local/state/bufconf/clusters`.
pub fn default_root() -> Result<PathBuf, Error> {
    Ok(home_dir("XDG_STATE_HOME", ".local/state")?.join("clusters"))
}

/// The state of the cluster `name` under `root`.
pub fn status(root: &Path, name: &str) -> Result<State, Error> {
    state(&folder(root, name)?)
}

/// All clusters under `root`, sorted by name.
pub fn list(root: &Path) -> Result<Vec<(String, State)>, Error> {
    let mut found = Vec::new();
    for dir in folders(root)? {
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.starts_with('.') && dir.join("config.json").exists() {
            found.push((name, state(&dir)?));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

/// The cluster `name` under `root`: the running one, or a new one made as `config` says. Blocks until it is up; `program`
/// is asked to be its supervisor (`PROGRAM cluster serve DIR`) and `sources` for the binaries, when they are needed.
pub fn start(
    root: &Path,
    name: &str,
    config: &ServeConfig,
    program: &Path,
    sources: &Sources,
    progress: &dyn Progress,
) -> Result<Running, Error> {
    let dir = folder(root, name)?;
    config.check()?;
    let mut job = None;
    // a node image may have to be pulled first
    let patience = if config.kind.is_some() { START_PATIENCE * 4 } else { START_PATIENCE };
    let mut deadline = Instant::now() + patience;
    let mut launch = Launch { program, child: None, launches: 0, since: Instant::now() };
    loop {
        match state(&dir)? {
            State::Ready(ready) => {
                let there: Option<Job> = read_json(&dir.join("config.json"))?;
                if there.is_some_and(|job| job.cluster.kind.is_some() != config.kind.is_some()) {
                    return Err(Error::OtherGround(name.to_owned()));
                }
                return Ok(Running { dir, ready: *ready });
            }
            State::Failed(reason) => match is_served(&dir)? {
                // With an owner it stays, so that all of the owner's processes hear the reason; else it is on its way out.
                true if !has_owner(&dir)? => {}
                false if launch.launches == 0 => {
                    sweep_one(&dir)?;
                }
                _ => return Err(Error::Failed(reason)),
            },
            State::Stale => {
                sweep_one(&dir)?;
            }
            State::Starting => {}
            State::Absent | State::New if launch.is_pending() => {}
            State::Absent | State::New => {
                if launch.launches == LAUNCHES {
                    return Err(Error::Failed(launch.complaint(&dir)));
                }
                let path = dir.join("config.json");
                let Some(job) = &job else {
                    sweep(root)?;
                    let ground = match &config.kind {
                        None => Ground::Servers(prepare(&config.kubernetes, sources, progress)?),
                        Some(kind) => {
                            let version = release(&config.kubernetes)?.kubernetes;
                            Ground::Kind(kind.clone(), kind::tools(kind, version, &sources.cache)?)
                        }
                    };
                    job = Some(files::to_json(&path, &Job { ground, cluster: config.clone() })?);
                    // The clock starts now: that may have taken minutes.
                    deadline = Instant::now() + patience;
                    continue;
                };
                private_dir(&dir)?;
                publish_first(&path, job)?;
                launch.again(&dir)?;
            }
        }
        if Instant::now() > deadline {
            let last = launch.complaint(&dir);
            return Err(Error::NotReady { what: format!("cluster {name}"), after: patience, last });
        }
        std::thread::sleep(POLL);
    }
}

/// The supervisors that one call of [`start`] has started.
struct Launch<'a> {
    program: &'a Path,
    child: Option<Child>,
    launches: u32,
    since: Instant,
}

impl Launch<'_> {
    fn again(&mut self, dir: &Path) -> Result<(), Error> {
        let log = log(dir);
        let out = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&log)
            .map_err(Error::io("opening", &log))?;
        let err = out.try_clone().map_err(Error::io("opening", &log))?;
        let child = Command::new(self.program)
            .args(SUBCOMMAND)
            .arg(dir)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .map_err(Error::io("starting", self.program))?;
        self.leave();
        self.child = Some(child);
        self.launches += 1;
        self.since = Instant::now();
        Ok(())
    }

    /// Whether the last one may still be about to take its lock.
    fn is_pending(&mut self) -> bool {
        match &mut self.child {
            Some(child) => matches!(child.try_wait(), Ok(None)) && self.since.elapsed() < LOCK_PATIENCE,
            None => false,
        }
    }

    /// Leaves the last one alone, except that its end is noticed: else it stayed a zombie as long as we live.
    fn leave(&mut self) {
        if let Some(mut child) = self.child.take() {
            std::thread::spawn(move || child.wait());
        }
    }

    fn complaint(&self, dir: &Path) -> String {
        let said = tail(&log(dir), 10);
        format!("{} does not serve {}: {said}", self.program.display(), dir.display())
    }
}

impl Drop for Launch<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

fn log(dir: &Path) -> PathBuf {
    dir.join("supervisor.log")
}

/// Stops the cluster `name` under `root` and waits until nothing of it is left. False when there was none.
pub fn stop(root: &Path, name: &str) -> Result<bool, Error> {
    let dir = folder(root, name)?;
    match state(&dir)? {
        State::Absent => return Ok(false),
        State::Starting | State::Ready(_) | State::Failed(_) => {}
        State::New | State::Stale => return sweep_one(&dir),
    }
    let Some(handle) = supervisor(&dir)? else { return sweep_one(&dir) };
    let failed = |what| Error::io(what, &dir);
    process::signal(&handle, Signal::TERM).map_err(failed("stopping"))?;
    if !process::wait(&handle, Some(STOP_PATIENCE)).map_err(failed("stopping"))? {
        process::signal(&handle, Signal::KILL).map_err(failed("killing"))?;
        process::wait(&handle, None).map_err(failed("killing"))?;
    }
    // Killed, or on its way out by itself, it leaves the folder.
    sweep_one(&dir)?;
    Ok(true)
}

/// A handle of the supervisor in charge; `None` when it has ended.
fn supervisor(dir: &Path) -> Result<Option<std::os::fd::OwnedFd>, Error> {
    let Some(pid) = files::read(&dir.join("pid"))?.and_then(|text| text.trim().parse().ok()) else {
        return Ok(None);
    };
    let handle = process::handle(pid).map_err(Error::io("watching", dir))?;
    // In this order: the lock is still held, so the handle is the supervisor's and not that of a later process.
    Ok(if is_served(dir)? { handle } else { None })
}

/// Removes what supervisors that were killed have left under `root`; returns how many folders.
pub fn sweep(root: &Path) -> Result<usize, Error> {
    let mut swept = 0;
    for dir in folders(root)? {
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(GONE) || dir.join("config.json").exists() {
            match sweep_one(&dir) {
                Ok(gone) => swept += usize::from(gone),
                // a kind cluster, and Docker is away: what is left is in nobody's way
                Err(error) => tracing::warn!(dir = %dir.display(), error = chain(&error), "can't be removed"),
            }
        }
    }
    Ok(swept)
}

/// Removes one folder if no supervisor serves it and none is about to.
fn sweep_one(dir: &Path) -> Result<bool, Error> {
    let lock = dir.join("lock");
    if !dir.join("pid").exists() && !abandoned(dir) {
        return Ok(false);
    }
    let held = match Lock::attempt(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(Some(held)) => held,
        Ok(None) => return Ok(false),
        // Removed by somebody else meanwhile.
        Err(_) if !dir.exists() => return Ok(false),
        Err(error) => return Err(error),
    };
    if !held.is_at(&lock) {
        return Ok(false);
    }
    discard(dir)?;
    Ok(true)
}

fn abandoned(dir: &Path) -> bool {
    let age =
        fs::metadata(dir).and_then(|folder| folder.modified()).ok().and_then(|time| time.elapsed().ok());
    age.is_some_and(|age| age > ABANDONED)
}

fn folders(root: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(Error::io("reading", root))?,
    };
    entries
        .map(|entry| entry.map(|entry| entry.path()).map_err(Error::io("reading", root)))
        .filter(|path| path.as_ref().map_or(true, |path| path.is_dir()))
        .collect()
}

fn folder(root: &Path, name: &str) -> Result<PathBuf, Error> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 63 || name.starts_with('.') || !name.chars().all(good) {
        return Err(Error::BadName(name.to_owned()));
    }
    std::path::absolute(root.join(name)).map_err(Error::io("opening", root))
}

fn state(dir: &Path) -> Result<State, Error> {
    if !dir.exists() {
        return Ok(State::Absent);
    }
    let served = is_served(dir)?;
    if let Some(reason) = files::read(&dir.join("failed"))? {
        return Ok(State::Failed(reason));
    }
    Ok(match (served, read_json::<Box<Ready>>(&dir.join("ready"))?) {
        // Somebody who just removes what a dead supervisor has left holds the lock too.
        (true, Some(ready)) if !exists(ready.supervisor)? => State::Stale,
        (true, Some(ready)) => State::Ready(ready),
        (true, None) => State::Starting,
        (false, _) if dir.join("pid").exists() => State::Stale,
        (false, _) => State::New,
    })
}

fn exists(pid: u32) -> Result<bool, Error> {
    process::handle(pid)
        .map(|handle| handle.is_some())
        .map_err(Error::io("looking for process", pid.to_string()))
}

fn has_owner(dir: &Path) -> Result<bool, Error> {
    let job: Option<Job> = read_json(&dir.join("config.json"))?;
    Ok(job.is_some_and(|job| job.cluster.owner.is_some()))
}

/// Whether a supervisor holds the folder's lock.
fn is_served(dir: &Path) -> Result<bool, Error> {
    let lock = dir.join("lock");
    if !lock.exists() {
        return Ok(false);
    }
    match Lock::attempt(&lock, FlockOperation::NonBlockingLockShared) {
        Ok(lock) => Ok(lock.is_none()),
        // Removed with its folder meanwhile.
        Err(_) if !dir.exists() => Ok(false),
        Err(error) => Err(error),
    }
}
