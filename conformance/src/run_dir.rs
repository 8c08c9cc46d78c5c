//! The folder of one run, shared by all its processes: planes, leases and the entries of the report.
//!
//! Every process of the run holds a shared lock on it; the last one out removes it. What is left by processes that were
//! killed goes with the next command.

use std::{
    fs::{self, File},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};
use test_cluster::clusters;

/// A run's folder, for as long as this process takes part in the run.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    lock: File,
}

impl RunDir {
    /// Makes or joins the folder of the run with this key, and removes those of runs that are over.
    pub fn join(key: &str) -> Result<Self> {
        let root = root()?;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&root)
            .with_context(|| format!("creating {}", root.display()))?;
        sweep(&root, key)?;
        let path = root.join(key);
        loop {
            for folder in [path.clone(), path.join("planes"), path.join("slots"), path.join("entries")] {
                match fs::DirBuilder::new().mode(0o700).create(&folder) {
                    Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                        return Err(error).with_context(|| format!("creating {}", folder.display()));
                    }
                    _ => {}
                }
            }
            if let Some(lock) = locked(&path, FlockOperation::LockShared)? {
                return Ok(Self { path, lock });
            }
        }
    }

    /// The folder that a plane's supervisor belongs to, if it belongs to a run.
    pub fn of_plane(plane: &Path) -> Result<Option<Self>> {
        let Some(path) = plane.parent().and_then(Path::parent) else { return Ok(None) };
        if path.parent() != Some(root()?.as_path()) {
            return Ok(None);
        }
        Ok(locked(path, FlockOperation::LockShared)?.map(|lock| Self { path: path.to_owned(), lock }))
    }

    /// Root of the run's planes.
    #[must_use]
    pub fn planes(&self) -> PathBuf {
        self.path.join("planes")
    }

    /// Folder of the logs of kind nodes that could not join.
    #[must_use]
    pub fn joins(&self) -> PathBuf {
        self.path.join("joins")
    }

    /// Folder of the slots' locks.
    #[must_use]
    pub fn slots(&self) -> PathBuf {
        self.path.join("slots")
    }

    /// Folder of the report's entries.
    #[must_use]
    pub fn entries(&self) -> PathBuf {
        self.path.join("entries")
    }

    /// What the run was asked for, as the first process wrote it.
    #[must_use]
    pub fn request(&self) -> PathBuf {
        self.path.join("request.json")
    }

    /// Leaves the run. The last one out calls `last` with the folder still there, then removes it.
    pub fn leave(self, last: impl FnOnce(&Self) -> Result<()>) -> Result<()> {
        clusters::sweep(&self.planes())?;
        // Another process may be about to do the same; whoever gets the lock does it.
        if flock(&self.lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(());
        }
        let result = last(&self);
        fs::remove_dir_all(&self.path).with_context(|| format!("removing {}", self.path.display()))?;
        result
    }
}

/// Where runs live: beside the clusters that people start by name.
pub fn root() -> Result<PathBuf> {
    Ok(clusters::default_root()?.with_file_name("runs"))
}

/// Removes the folders of runs that nobody takes part in any more, but for one.
fn sweep(root: &Path, but: &str) -> Result<()> {
    for entry in fs::read_dir(root).with_context(|| format!("reading {}", root.display()))? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name == but) || !path.join("planes").is_dir() {
            continue;
        }
        if let Some(_lock) = locked(&path, FlockOperation::NonBlockingLockExclusive)? {
            clusters::sweep(&path.join("planes"))?;
            if !clusters::list(&path.join("planes"))?.is_empty() {
                continue;
            }
            fs::remove_dir_all(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}

/// The lock of a run's folder, unless somebody else holds it or the folder went away meanwhile.
fn locked(path: &Path, operation: FlockOperation) -> Result<Option<File>> {
    let file = path.join("lock");
    let lock = match File::options().create(true).append(true).open(&file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.with_context(|| format!("opening {}", file.display()))?,
    };
    if flock(&lock, operation).is_err() {
        return Ok(None);
    }
    let ours = lock.metadata().with_context(|| format!("reading {}", file.display()))?;
    Ok(fs::metadata(&file).is_ok_and(|there| there.ino() == ours.ino()).then_some(lock))
}
