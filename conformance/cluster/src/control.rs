//! What can be asked of a running supervisor: one JSON line each way over a Unix socket in the cluster's folder.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::Error;
pub use crate::child::{ChildState, Death};

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// End all children in order, remove the folder.
    Stop,
    /// Only answer.
    Status,
    /// End a child, start it again, wait until it is healthy.
    Restart(String),
    /// Kill a child and leave it dead.
    Kill(String),
}

/// The answer: how things are after the request, or why it could not be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// All children, servers included, by name.
    Children(BTreeMap<String, ChildState>),
    /// A sentence.
    Refused(String),
}

/// Longer than a child's grace period and the patience with its health.
const PATIENCE: Duration = Duration::from_mins(2);

/// Asks the supervisor of the cluster in `dir`; blocks until it has done what was asked.
pub fn request(dir: &Path, request: &Request) -> Result<BTreeMap<String, ChildState>, Error> {
    let (_folder, path) = socket(dir)?;
    let failed = |what| Error::io(what, dir.join(SOCKET));
    let mut stream = UnixStream::connect(path).map_err(failed("connecting to"))?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed("connecting to"))?;
    let json = |source| Error::Json { path: dir.join(SOCKET), source };
    let line = serde_json::to_string(request).map_err(json)?;
    writeln!(stream, "{line}").map_err(failed("writing to"))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).map_err(failed("reading from"))?;
    match serde_json::from_str(&line).map_err(json)? {
        Answer::Children(children) => Ok(children),
        Answer::Refused(reason) => Err(Error::Refused(reason)),
    }
}

const SOCKET: &str = "control";

/// A short path to the socket, valid as long as the file is open: an address has room for 108 bytes only.
pub(crate) fn socket(dir: &Path) -> Result<(File, PathBuf), Error> {
    let folder = File::open(dir).map_err(Error::io("opening", dir))?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(SOCKET);
    Ok((folder, path))
}
