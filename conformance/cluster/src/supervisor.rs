//! The process that owns one control plane and the subject's processes on it.
//!
//! It runs in a session of its own and holds a lock in the cluster's folder as long as it lives. When its owner process
//! is gone, by whatever signal, it kills everything and removes the folder; asked by SIGTERM, SIGINT, SIGHUP or over the
//! control socket it ends its children in order first. When it is itself killed, the kernel kills its children
//! ([`crate::shim`]) and the folder is left for [`crate::clusters::sweep`].
//!
//! | file | what |
//! |---|---|
//! | `lock` | held by the living supervisor |
//! | `config.json` | what to run |
//! | `pid` | the supervisor's process id, once it has the lock |
//! | `ready` | [`Ready`], once everything runs; renamed into place |
//! | `failed` | why it could not be started |
//! | `children.json` | [`crate::control::ChildState`] of each child by name |
//! | `control` | the socket for [`crate::control::request`] |
//! | `kubeconfig`, `audit.log`, `logs/`, `pki/`, `etcd/` | of the control plane |

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use buffer_client::chain;
use kube::api::DynamicObject;
use rustix::{
    fs::{FlockOperation, Mode},
    process::{setsid, umask},
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

use crate::{
    ChildConfig, Error,
    binaries::Binaries,
    child::{Death, Fleet},
    config::{Ground, Job, Values},
    control::{Answer, Request, socket},
    files::{Lock, publish, publish_json, read_json, remove_dir, tail},
    kind,
    plane::{Plane, STOP_ORDER},
    ports, process, ready,
};

/// What a client needs to know of a running cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ready {
    /// The admin's kubeconfig.
    pub kubeconfig: PathBuf,
    /// The supervisor's process id.
    pub supervisor: u32,
    /// All children's process ids at this moment, servers included, by name.
    pub pids: BTreeMap<String, u32>,
    /// Ports by server name and by the names in `${PORT:name}`.
    pub ports: BTreeMap<String, u16>,
    /// How long the phases of the start took, in milliseconds: `plane`, then each child by name.
    pub took: BTreeMap<String, u64>,
}

/// How a supervisor ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Another one serves this folder already.
    AlreadyServed,
    /// It was asked to end: all children are gone and so is the folder.
    Ended,
    /// The same, because the owner is gone.
    OwnerGone,
    /// The start failed; the folder stays so that `failed` and the logs can be read.
    Failed,
}

/// Which attempt to start a plane is the last one, when ports are lost to other processes.
const ATTEMPTS: u32 = 3;
/// How long a client may take to say what it wants.
const REQUEST_PATIENCE: Duration = Duration::from_secs(2);
/// How long others may hold the lock only to see whether it is free.
const PROBE_PATIENCE: Duration = Duration::from_millis(500);

/// Serves the cluster whose folder is `dir`, until its owner is gone or it is asked to end.
///
/// The body of a hidden subcommand; `dir/config.json` is written by [`crate::clusters::start`]. Must be called on the main
/// thread, outside of an async runtime: the children's parent-death signal is tied to the thread that starts them.
pub fn serve(dir: &Path) -> Result<Outcome, Error> {
    if std::thread::current().name() != Some("main") || tokio::runtime::Handle::try_current().is_ok() {
        return Err(Error::NotMainThread);
    }
    // Refused only to the leader of a process group, as an interactive shell starts one: then nobody relies on it.
    if let Err(error) = setsid() {
        tracing::debug!(%error, "keeping the session");
    }
    umask(Mode::RWXG | Mode::RWXO);
    let dir = dir.canonicalize().map_err(Error::io("opening", dir))?;
    let Some(lock) = lock(&dir)? else { return Ok(Outcome::AlreadyServed) };
    publish(&dir.join("pid"), std::process::id().to_string())?;
    let outcome = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::io("starting", &dir))?
        .block_on(run(&dir))?;
    if matches!(outcome, Outcome::Ended | Outcome::OwnerGone) {
        discard(&dir)?;
    }
    drop(lock);
    Ok(outcome)
}

/// Takes the lock, unless another supervisor has it or the folder was swept meanwhile.
fn lock(dir: &Path) -> Result<Option<Lock>, Error> {
    let path = dir.join("lock");
    let start = Instant::now();
    loop {
        if let Some(lock) = Lock::attempt(&path, FlockOperation::NonBlockingLockExclusive)? {
            return Ok(lock.is_at(&path).then_some(lock));
        }
        if start.elapsed() > PROBE_PATIENCE {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Removes a cluster's folder whose lock is held, and what of it is not in the folder. The folder is moved out of the way
/// first, so that the name is free at once.
pub(crate) fn discard(dir: &Path) -> Result<(), Error> {
    kind::delete(dir)?;
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let gone = dir.with_file_name(format!("{GONE}{name}-{}", std::process::id()));
    match std::fs::rename(dir, &gone) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io("removing", dir)(error)),
        Ok(()) => remove_dir(&gone),
    }
}

/// What the name of a folder on its way out begins with.
pub(crate) const GONE: &str = ".gone-";

async fn run(dir: &Path) -> Result<Outcome, Error> {
    let path = dir.join("config.json");
    let job: Job = read_json(&path)?
        .ok_or_else(|| Error::io("reading", &path)(std::io::Error::from(std::io::ErrorKind::NotFound)))?;
    let mut fleet = Fleet::new(dir);
    let outcome = match Ends::new(dir, job.cluster.owner)? {
        Some(mut ends) => attend(dir, &job, &mut fleet, &mut ends).await?,
        None => Outcome::OwnerGone,
    };
    if outcome == Outcome::OwnerGone {
        for folder in &job.cluster.ends_with_owner {
            remove_dir(folder)?;
        }
    }
    Ok(outcome)
}

/// Works until there is a reason to end, then ends all children.
async fn attend(dir: &Path, job: &Job, fleet: &mut Fleet, ends: &mut Ends) -> Result<Outcome, Error> {
    let mut end = tokio::select! {
        biased;
        end = ends.next() => Ok(end),
        worked = work(dir, job, fleet) => worked.map(|()| Outcome::Ended),
    };
    if let Ok(Outcome::Ended) = end {
        tokio::select! {
            // Asked twice, or the owner is gone meanwhile: no more patience.
            sooner = ends.next() => end = Ok(sooner),
            ended = stop(fleet) => ended?,
        }
    }
    fleet.kill_all().await?;
    match end {
        Ok(outcome) => Ok(outcome),
        Err(error) => {
            tracing::error!(error = chain(&error), "failed");
            publish(&dir.join("failed"), chain(&error))?;
            // All of the owner's processes shall see the reason, not only the first one.
            if job.cluster.owner.is_some() { Ok(ends.next().await) } else { Ok(Outcome::Failed) }
        }
    }
}

struct Ends {
    owner_gone: watch::Receiver<bool>,
    signals: [Signal; 3],
}

impl Ends {
    /// `None` when the owner is gone already.
    fn new(dir: &Path, owner: Option<u32>) -> Result<Option<Self>, Error> {
        let failed = |error| Error::io("watching the owner of", dir)(error);
        let (gone, owner_gone) = watch::channel(false);
        if let Some(pid) = owner {
            let Some(handle) = process::handle(pid).map_err(failed)? else { return Ok(None) };
            // A thread, since tokio has no safe way to wait for a handle that it did not make. It starts no process.
            std::thread::spawn(move || {
                if let Err(error) = process::wait(&handle, None) {
                    tracing::error!(%error, "can't watch the owner");
                }
                gone.send_replace(true);
            });
        }
        let on = |kind| signal(kind).map_err(failed);
        let signals = [on(SignalKind::terminate())?, on(SignalKind::interrupt())?, on(SignalKind::hangup())?];
        Ok(Some(Self { owner_gone, signals }))
    }

    /// Waits for a reason to end: `OwnerGone` or `Ended`.
    async fn next(&mut self) -> Outcome {
        let [terminate, interrupt, hangup] = &mut self.signals;
        tokio::select! {
            // Without an owner the sender is gone: this branch is then disabled.
            Ok(_) = self.owner_gone.wait_for(|&gone| gone) => Outcome::OwnerGone,
            _ = terminate.recv() => Outcome::Ended,
            _ = interrupt.recv() => Outcome::Ended,
            _ = hangup.recv() => Outcome::Ended,
        }
    }
}

/// Starts everything, then answers requests until one of them is to stop.
async fn work(dir: &Path, job: &Job, fleet: &mut Fleet) -> Result<(), Error> {
    let crds = ready::manifests(&job.cluster.crds)?;
    let mut took = BTreeMap::new();
    let mut lap = Lap(Instant::now());
    let (kubeconfig, servers) = match &job.ground {
        Ground::Servers(binaries) => {
            let plane = start_plane(dir, binaries, &crds, fleet).await?;
            (plane.kubeconfig, plane.ports)
        }
        Ground::Kind(config, tools) => (kind::up(dir, config, tools, &crds).await?, BTreeMap::new()),
    };
    took.insert("plane".to_owned(), lap.next());

    let children = &job.cluster.children;
    let names: BTreeSet<&str> = children.iter().flat_map(ChildConfig::port_names).collect();
    let mut ports: BTreeMap<String, u16> =
        names.iter().map(ToString::to_string).zip(ports::free(names.len())?).collect();
    let path = kubeconfig.display().to_string();
    for child in children {
        let mut child = child.resolve(&Values { kubeconfig: &path, ports: &ports });
        if let Ground::Kind(config, _) = &job.ground {
            child.env.extend(kind::variables(dir, config));
        }
        fleet.start(child.clone())?;
        healthy(fleet, &child).await?;
        took.insert(child.name, lap.next());
    }

    let (_folder, path) = socket(dir)?;
    let listener = UnixListener::bind(path).map_err(Error::io("listening on", dir.join("control")))?;
    ports.extend(servers);
    let ready = Ready {
        kubeconfig,
        supervisor: std::process::id(),
        pids: fleet.states().into_iter().map(|(name, state)| (name, state.pid)).collect(),
        ports,
        took,
    };
    publish_json(&dir.join("ready"), &ready)?;
    tracing::info!(?ready.took, "ready");
    answer(&listener, fleet).await
}

struct Lap(Instant);

impl Lap {
    fn next(&mut self) -> u64 {
        let lap = self.0.elapsed().as_millis();
        self.0 = Instant::now();
        u64::try_from(lap).unwrap_or(u64::MAX)
    }
}

async fn start_plane(
    dir: &Path,
    binaries: &Binaries,
    crds: &[DynamicObject],
    fleet: &mut Fleet,
) -> Result<Plane, Error> {
    let mut attempt = 1;
    loop {
        let plane = Plane::create(dir, binaries)?;
        let error = match start_servers(&plane, crds, fleet).await {
            Ok(()) => return Ok(plane),
            Err(error) => error,
        };
        let lost_port =
            STOP_ORDER.iter().any(|name| tail(&fleet.log(name), 50).contains("address already in use"));
        if attempt == ATTEMPTS || !lost_port {
            return Err(error);
        }
        tracing::warn!(attempt, "another process took a port, starting again");
        attempt += 1;
        fleet.kill_all().await?;
        fleet.clear();
    }
}

async fn start_servers(plane: &Plane, crds: &[DynamicObject], fleet: &mut Fleet) -> Result<(), Error> {
    let [etcd, api_server, controller_manager, scheduler] = plane.servers.clone();
    fleet.start(etcd)?;
    fleet.start(api_server)?;
    alive(fleet, ready::api_server(plane, crds)).await?;
    // Earlier they would give up: they have no patience with an API server that does not know their rights yet.
    fleet.start(controller_manager)?;
    fleet.start(scheduler)?;
    alive(fleet, ready::whole(plane, crds)).await
}

/// Waits for something that fails when a child dies.
async fn alive(fleet: &mut Fleet, wait: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    tokio::select! {
        ready = wait => ready,
        death = fleet.next_death() => Err(died(death?)),
    }
}

fn died((name, death): (String, Death)) -> Error {
    Error::Died { name, exit: death.reason(), log: death.log }
}

/// Waits until a child says that it is ready.
async fn healthy(fleet: &mut Fleet, child: &ChildConfig) -> Result<(), Error> {
    let Some(url) = &child.health else { return Ok(()) };
    let health = ready::answers(&child.name, url);
    tokio::pin!(health);
    loop {
        tokio::select! {
            answers = &mut health => return answers,
            death = fleet.next_death() => {
                let death = death?;
                if death.0 == child.name {
                    return Err(died(death));
                }
            }
        }
    }
}

async fn answer(listener: &UnixListener, fleet: &mut Fleet) -> Result<(), Error> {
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted.map_err(Error::io("listening on", "control"))?;
                match converse(stream, fleet).await {
                    Ok(Request::Stop) => return Ok(()),
                    Ok(_) => {}
                    // That client has gone; its request, if there was one, is done.
                    Err(error) => tracing::warn!(%error, "a request ended early"),
                }
            }
            // On record now. The rest keeps running: a crash of the subject shall be seen as a crash.
            death = fleet.next_death() => { death?; }
        }
    }
}

async fn converse(mut stream: UnixStream, fleet: &mut Fleet) -> std::io::Result<Request> {
    let (read, mut write) = stream.split();
    let mut line = String::new();
    tokio::time::timeout(REQUEST_PATIENCE, BufReader::new(read).read_line(&mut line)).await??;
    let request: Result<Request, _> = serde_json::from_str(&line);
    let done = match &request {
        Ok(Request::Stop | Request::Status) => Ok(()),
        Ok(Request::Kill(name)) => fleet.end(name, true).await,
        Ok(Request::Restart(name)) => match fleet.restart(name).await {
            Ok(child) => healthy(fleet, &child).await,
            Err(error) => Err(error),
        },
        Err(error) => Err(Error::Refused(format!("not a request: {error}"))),
    };
    let answer = match done {
        Ok(()) => Answer::Children(fleet.states()),
        Err(Error::Refused(reason)) => Answer::Refused(reason),
        Err(error) => Answer::Refused(chain(&error)),
    };
    let mut text = serde_json::to_string(&answer)?;
    text.push('\n');
    write.write_all(text.as_bytes()).await?;
    Ok(request?)
}

/// Ends all children in order: first the subject's, the last started first, then the servers.
async fn stop(fleet: &mut Fleet) -> Result<(), Error> {
    let names = fleet.names();
    let subject = names.iter().rev().map(String::as_str).filter(|name| !STOP_ORDER.contains(name));
    let servers = STOP_ORDER.into_iter().filter(|server| names.iter().any(|name| name == server));
    for name in subject.chain(servers) {
        fleet.end(name, false).await?;
    }
    Ok(())
}
