//! The four control-plane binaries of one Kubernetes minor.
//!
//! Each is looked for by itself, in this order: `$KUBEBUILDER_ASSETS` (which has only some of them), the cache
//! (`$BUFCONF_CACHE`, else `$XDG_CACHE_HOME/bufconf`, else `~/.cache/bufconf`), the publisher's download, and a build
//! with Go from module files that are embedded here. A binary counts only when its `--version` is of the wanted minor.

mod build;
mod download;
#[cfg(test)]
mod tests;
mod version;

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

pub use version::{DEFAULT_MINOR, Release, release};

use crate::{
    Error,
    files::{Lock, home_dir, private_dir, remove_dir},
};

/// Hears one line for each step that may take long.
pub trait Progress: Sync {
    /// What begins now, for people: "building etcd from source with go1.26.8 (about 1 minute)".
    fn step(&self, line: &str);
}

impl<F: Fn(&str) + Sync> Progress for F {
    fn step(&self, line: &str) {
        self(line);
    }
}

/// Where the binaries are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Binaries {
    /// etcd.
    pub etcd: PathBuf,
    /// kube-apiserver.
    pub kube_apiserver: PathBuf,
    /// kube-controller-manager.
    pub kube_controller_manager: PathBuf,
    /// kube-scheduler.
    pub kube_scheduler: PathBuf,
}

/// Where [`prepare`] looks. Settings are arguments, so that a test doesn't touch the environment.
#[derive(Debug, Clone)]
pub struct Sources {
    /// A folder that somebody else keeps, looked at first.
    pub assets: Option<PathBuf>,
    /// The cache of all versions, made when it is missing.
    pub cache: PathBuf,
    /// Where Kubernetes publishes its binaries.
    pub kubernetes_url: String,
    /// Where etcd publishes its archives.
    pub etcd_url: String,
    /// The Go command.
    pub go: PathBuf,
}

impl Sources {
    /// What the environment says, and the publishers' addresses.
    pub fn from_env() -> Result<Self, Error> {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let cache = match set("BUFCONF_CACHE") {
            Some(cache) => cache,
            None => home_dir("XDG_CACHE_HOME", ".cache")?,
        };
        Ok(Self {
            assets: set("KUBEBUILDER_ASSETS"),
            cache,
            kubernetes_url: "https://dl.k8s.io".to_owned(),
            etcd_url: "https://github.com/etcd-io/etcd/releases/download".to_owned(),
            go: PathBuf::from("go"),
        })
    }
}

/// One of the four.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Binary {
    Etcd,
    Apiserver,
    ControllerManager,
    Scheduler,
}

impl Binary {
    const ALL: [Self; 4] = [Self::Etcd, Self::Apiserver, Self::ControllerManager, Self::Scheduler];

    fn file(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Apiserver => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
        }
    }
}

/// The search in progress: what was found, and why the rest was not.
struct Search<'a> {
    sources: &'a Sources,
    release: &'static Release,
    progress: &'a dyn Progress,
    found: [Option<PathBuf>; 4],
    tried: Vec<String>,
}

/// Finds, downloads or builds the binaries of a Kubernetes minor. Blocks, for minutes when it has to build; one process
/// at a time does that, the others wait for it. What is made goes into the cache only when it is whole.
pub fn prepare(minor: &str, sources: &Sources, progress: &dyn Progress) -> Result<Binaries, Error> {
    let release = release(minor)?;
    let mut search = Search { sources, release, progress, found: [const { None }; 4], tried: Vec::new() };
    let cache = sources.cache.join("control-plane").join(release.kubernetes);
    match &sources.assets {
        Some(assets) => search.look(assets, "$KUBEBUILDER_ASSETS"),
        None => search.tried.push("$KUBEBUILDER_ASSETS is not set".to_owned()),
    }
    search.look(&cache, "the cache");
    if !search.missing().is_empty() {
        search.make(&cache)?;
    }
    search.result()
}

impl Search<'_> {
    fn missing(&self) -> Vec<Binary> {
        Binary::ALL.into_iter().filter(|&binary| self.found[binary as usize].is_none()).collect()
    }

    /// Takes from a folder what is there and of the wanted minor.
    fn look(&mut self, folder: &Path, what: &str) {
        let release = self.release;
        let missing = self.missing();
        // Each `--version` of the big ones costs a tenth of a second: side by side.
        let answers = std::thread::scope(|scope| {
            let checks: Vec<_> = missing
                .iter()
                .map(|&binary| {
                    scope.spawn(move || version::check(&folder.join(binary.file()), binary, release))
                })
                .collect();
            checks
                .into_iter()
                .map(|check| check.join().unwrap_or_else(|_| Err("check crashed".to_owned())))
                .collect::<Vec<_>>()
        });
        let mut notes = Vec::new();
        for (binary, answer) in missing.into_iter().zip(answers) {
            match answer {
                Ok(()) => self.found[binary as usize] = Some(folder.join(binary.file())),
                Err(reason) => notes.push(format!("{} {reason}", binary.file())),
            }
        }
        let note = format!("in {what} ({}): {}", folder.display(), notes.join(", "));
        if !notes.is_empty() && !self.tried.contains(&note) {
            self.tried.push(note);
        }
    }

    /// Downloads or builds what is missing into the cache.
    fn make(&mut self, cache: &Path) -> Result<(), Error> {
        private_dir(cache)?;
        let lock = cache.join("lock");
        let mut held = Lock::attempt(&lock, FlockOperation::NonBlockingLockExclusive)?;
        if held.is_none() {
            self.progress.step("waiting for another process that prepares the control-plane binaries");
            held = Some(Lock::wait(&lock, FlockOperation::LockExclusive)?);
        }
        // Somebody may have finished between our look and our lock.
        self.look(cache, "the cache");
        let staging = cache.join("staging");
        // Left behind by a process that was killed; the lock says that nobody uses it.
        remove_dir(&staging)?;
        private_dir(&staging)?;
        let missing = self.missing();
        if !missing.is_empty() {
            let notes = download::download(&missing, self.release, self.sources, &staging, self.progress);
            self.tried.extend(notes);
            self.take(&staging, cache, "the download")?;
        }
        let missing = self.missing();
        if !missing.is_empty() {
            match build::build(&missing, self.release, &self.sources.go, &staging, self.progress) {
                Ok(()) => self.take(&staging, cache, "the build")?,
                Err(reason) => self.tried.push(reason),
            }
        }
        remove_dir(&staging)?;
        drop(held);
        Ok(())
    }

    /// Moves what is good from the staging folder into the cache.
    fn take(&mut self, staging: &Path, cache: &Path, what: &str) -> Result<(), Error> {
        for binary in self.missing() {
            let (from, to) = (staging.join(binary.file()), cache.join(binary.file()));
            if !from.exists() {
                continue;
            }
            fs::set_permissions(&from, fs::Permissions::from_mode(0o755))
                .map_err(Error::io("making executable", &from))?;
            match version::check(&from, binary, self.release) {
                Ok(()) => {
                    fs::rename(&from, &to).map_err(Error::io("writing", &to))?;
                    self.found[binary as usize] = Some(to);
                }
                Err(reason) => self.tried.push(format!("from {what}: {} {reason}", binary.file())),
            }
        }
        Ok(())
    }

    fn result(self) -> Result<Binaries, Error> {
        let missing = self.missing().iter().map(|binary| binary.file()).collect::<Vec<_>>().join(", ");
        match self.found {
            [Some(etcd), Some(kube_apiserver), Some(kube_controller_manager), Some(kube_scheduler)] => {
                Ok(Binaries { etcd, kube_apiserver, kube_controller_manager, kube_scheduler })
            }
            _ => Err(Error::NoBinaries { missing, tried: self.tried.join("; ") }),
        }
    }
}
