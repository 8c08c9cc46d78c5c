//! Private files, atomic publication, file locks.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::fs::{FlockOperation, flock};
use serde::{Serialize, de::DeserializeOwned};

use crate::Error;

/// A folder that only its owner can enter, with all missing parents.
pub(crate) fn private_dir(path: &Path) -> Result<(), Error> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(Error::io("creating", path))
}

/// Writes a file that only its owner can read.
pub(crate) fn write_private(path: &Path, content: impl AsRef<[u8]>) -> Result<(), Error> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(content.as_ref()))
        .map_err(Error::io("writing", path))
}

/// Writes a file so that a reader sees all of it or none.
pub(crate) fn publish(path: &Path, content: impl AsRef<[u8]>) -> Result<(), Error> {
    let draft = draft_of(path);
    write_private(&draft, content)?;
    fs::rename(&draft, path).map_err(Error::io("writing", path))
}

/// As [`publish`], but an existing file wins.
pub(crate) fn publish_first(path: &Path, content: impl AsRef<[u8]>) -> Result<(), Error> {
    let draft = draft_of(path);
    write_private(&draft, content)?;
    let linked = fs::hard_link(&draft, path);
    fs::remove_file(&draft).map_err(Error::io("removing", &draft))?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(Error::io("writing", path)(error)),
        _ => Ok(()),
    }
}

/// A name next to the target that no other process and no other thread uses.
fn draft_of(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    path.with_extension(format!("draft-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// As [`publish`], a value as JSON.
pub(crate) fn publish_json(path: &Path, value: &impl Serialize) -> Result<(), Error> {
    publish(path, to_json(path, value)?)
}

pub(crate) fn to_json(path: &Path, value: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec_pretty(value).map_err(|source| Error::Json { path: path.to_owned(), source })
}

/// Reads a JSON file; `None` when it is not there.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Error> {
    let Some(text) = read(path)? else { return Ok(None) };
    serde_json::from_str(&text).map(Some).map_err(|source| Error::Json { path: path.to_owned(), source })
}

/// Reads a text file; `None` when it is not there.
pub(crate) fn read(path: &Path) -> Result<Option<String>, Error> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("reading", path)(error)),
    }
}

/// Opens a log of which only its owner sees anything, to write at its end.
pub(crate) fn append(path: &Path) -> Result<File, Error> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path).map_err(Error::io("opening", path))
}

/// The last lines of a log, to explain a failure; empty when there is none.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    const ENOUGH: u64 = 16 * 1024;
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let from = file.metadata()?.len().saturating_sub(ENOUGH);
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(ENOUGH).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let text = read().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// A held file lock. It ends with this value, and with the process however that ends.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Lock {
    /// Waits for the lock.
    pub(crate) fn wait(path: &Path, operation: FlockOperation) -> Result<Self, Error> {
        let file = open(path)?;
        loop {
            match flock(&file, operation) {
                Ok(()) => return Ok(Self(file)),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Error::io("locking", path)(error.into())),
            }
        }
    }

    /// `None` when somebody else holds it.
    pub(crate) fn attempt(path: &Path, operation: FlockOperation) -> Result<Option<Self>, Error> {
        let file = open(path)?;
        match flock(&file, operation) {
            Ok(()) => Ok(Some(Self(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(Error::io("locking", path)(error.into())),
        }
    }

    /// Whether the path still leads to the file that is locked: the folder may have been moved away meanwhile.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        match (self.0.metadata(), fs::metadata(path)) {
            (Ok(held), Ok(there)) => held.dev() == there.dev() && held.ino() == there.ino(),
            _ => false,
        }
    }
}

fn open(path: &Path) -> Result<File, Error> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(Error::io("opening", path))
}

/// Removes a folder, also one in which a process that is just dying still writes.
pub(crate) fn remove_dir(path: &Path) -> Result<(), Error> {
    let mut left = 50;
    loop {
        match fs::remove_dir_all(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty && left > 0 => {
                left -= 1;
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            Err(error) => return Err(Error::io("removing", path)(error)),
        }
    }
}

/// `$variable/bufconf`, else `~/fallback/bufconf`.
pub(crate) fn home_dir(variable: &'static str, fallback: &str) -> Result<PathBuf, Error> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set(variable)
        .or_else(|| set("HOME").map(|home| home.join(fallback)))
        .map(|base| base.join("bufconf"))
        .ok_or(Error::NoHome(variable))
}
