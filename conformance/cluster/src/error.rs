//! What can go wrong.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

/// Everything that this crate can fail with.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file, folder, socket or process could not be used.
    #[error("{what} {}", path.display())]
    Io {
        /// What was being done, as a gerund: "reading", "starting".
        what: &'static str,
        /// What it was done to.
        path: PathBuf,
        /// The operating system's answer.
        #[source]
        source: io::Error,
    },
    /// A file that this crate wrote, or the caller's configuration, is not what it should be.
    #[error("{} is not valid", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// No folder for files of this kind can be derived from the environment.
    #[error("neither {0} nor HOME is set")]
    NoHome(&'static str),
    /// There are no pins and module files for this Kubernetes minor.
    #[error("Kubernetes {wanted} is not supported, only {supported}")]
    UnknownMinor {
        /// The minor that was asked for.
        wanted: String,
        /// Those that there are, separated by commas.
        supported: String,
    },
    /// Some control-plane binaries are nowhere and can't be made.
    #[error("no {missing}: {tried}")]
    NoBinaries {
        /// The names, separated by commas.
        missing: String,
        /// What was tried and how each attempt ended.
        tried: String,
    },
    /// A cluster of that name runs, and is made of something else.
    #[error("cluster {0} is up already and of another kind; stop it first: bufconf cluster down --name {0}")]
    OtherGround(String),
    /// A kind cluster can't be had.
    #[error("{what}: {why}")]
    Kind {
        /// What was tried, or is missing.
        what: String,
        /// Why it failed, or what to do.
        why: String,
    },
    /// The API server of a cluster that is up refused something.
    #[error("preparing the cluster")]
    Api(#[from] Box<kube::Error>),
    /// Certificates could not be made.
    #[error("making certificates")]
    Certificates(#[from] rcgen::Error),
    /// No free loopback port was found.
    #[error("no free port on 127.0.0.1")]
    NoPort,
    /// A CRD manifest of the configuration can't be used.
    #[error("CRD manifest {number}: {reason}")]
    Manifest {
        /// Its place in the configuration, from 1.
        number: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A process of the configuration can't be run.
    #[error("child process \"{name}\": {reason}")]
    Child {
        /// Its name in the configuration.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A client could not be made.
    #[error("connecting to the cluster")]
    Client(#[from] buffer_client::Error),
    /// Something did not become ready in time.
    #[error("{what} not ready after {} s: {last}", after.as_secs())]
    NotReady {
        /// What was waited for.
        what: String,
        /// How long.
        after: Duration,
        /// What was seen last.
        last: String,
    },
    /// A process ended while it was needed.
    #[error("{name} ended ({exit}); its last lines:\n{log}")]
    Died {
        /// Its name in the configuration.
        name: String,
        /// Exit code or signal.
        exit: String,
        /// The end of its log.
        log: String,
    },
    /// A supervisor could not start its plane or its children; the text is its own account.
    #[error("the cluster could not be started: {0}")]
    Failed(String),
    /// A supervisor refused or could not do what was asked of it.
    #[error("the cluster's supervisor: {0}")]
    Refused(String),
    /// No cluster of this name is running.
    #[error("no cluster named {0} is running")]
    NotRunning(String),
    /// The name can't be that of a cluster.
    #[error(
        "\"{0}\" can't name a cluster: use letters, digits, '-', '_' and '.', at most 63, not starting with '.'"
    )]
    BadName(String),
    /// [`crate::supervisor::serve`] was called where the children would die with a short-lived thread.
    #[error("a supervisor must run on the main thread, outside of any async runtime")]
    NotMainThread,
    /// The process that a child should die with is gone already.
    #[error("the parent process is gone")]
    Orphaned,
    /// The API server of an existing cluster does not answer.
    #[error("the cluster at {server} can't be reached")]
    Unreachable {
        /// Its URL.
        server: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server of an existing cluster answers, but not what was asked.
    #[error("asking the cluster at {server}")]
    Query {
        /// Its URL.
        server: String,
        /// Its answer.
        #[source]
        source: Box<kube::Error>,
    },
    /// An existing cluster is not marked as one that may be filled and emptied.
    #[error(
        "the cluster at {server} is not marked disposable: create the ConfigMap {marker} in kube-system if tests may create and delete nodes and pods there"
    )]
    NotDisposable {
        /// Its URL.
        server: String,
        /// The name of the `ConfigMap`.
        marker: &'static str,
    },
}

impl Error {
    /// For `map_err` on file and process operations.
    pub(crate) fn io(what: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::Io { what, path, source }
    }
}
