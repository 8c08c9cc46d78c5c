//! What can go wrong.

/// What can go wrong. Where a claim, a node or a pod can't be dealt with, it is tried again; only what concerns the whole
/// cloud ends [`run`](crate::run).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no client for the cluster.
    #[error("connecting to the cluster")]
    Client(#[from] buffer_client::Error),
    /// The API server does not say which version it has.
    #[error("asking the API server for its version")]
    Version(#[source] Box<kube::Error>),
    /// The admin port can't be had.
    #[error("listening on 127.0.0.1:{port}")]
    Admin {
        /// Port.
        port: u16,
        /// Why not.
        source: std::io::Error,
    },
    /// A part of the cloud ended that never should.
    #[error("a part of the cloud broke down")]
    Broken(#[source] tokio::task::JoinError),
    /// A part of the cloud came to its end; the log says why.
    #[error("a part of the cloud has ended")]
    Ended,
    /// A request failed.
    #[error("{doing}")]
    Api {
        /// What the request was for.
        doing: &'static str,
        /// Why it failed.
        source: Box<kube::Error>,
    },
    /// The machine of a node could not be dealt with.
    #[error(transparent)]
    Machine(#[from] crate::kind::Error),
    /// Something took too long.
    #[error("{0} takes too long")]
    Late(&'static str),
    /// The log of a join could not be kept.
    #[error("writing {path}")]
    Log {
        /// The file.
        path: std::path::PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// An amount in the API is not a quantity.
    #[error("reading quantities")]
    Quantity(#[from] buffer_api::quantity::ParseQuantityError),
    /// All addresses are in use.
    #[error("no address is left for {0}")]
    Addresses(String),
    /// A node of the claim's name exists and belongs to somebody else.
    #[error("the node {0} exists already and is not of this cloud")]
    ForeignNode(String),
}

impl Error {
    /// What a command in a container has said before it failed.
    #[must_use]
    pub fn output(&self) -> Option<&str> {
        match self {
            Self::Machine(crate::kind::Error::Exit { output, .. }) => Some(output),
            _ => None,
        }
    }
}

/// Says what a request was for.
pub(crate) fn doing(doing: &'static str) -> impl FnOnce(kube::Error) -> Error {
    move |source| Error::Api { doing, source: Box::new(source) }
}

/// Whether the object is not there.
pub(crate) fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}

/// Whether the object is not the one, or not of the version, that was meant.
pub(crate) fn is_stale(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict())
}
