//! Why the controller ends.

use std::time::Duration;

use buffer_client::chain;

use crate::leader::Timing;

/// Why the controller ends. Failed reads and writes of single objects don't end it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No client could be made.
    #[error("connecting to the cluster")]
    Connect(#[from] buffer_client::Error),
    /// The admin port can't be used.
    #[error("listening on 127.0.0.1:{port}")]
    AdminPort {
        /// The port.
        port: u16,
        /// What the system said.
        source: std::io::Error,
    },
    /// Some kinds could not be listed in time: a CustomResourceDefinition or a permission is missing, or the
    /// API server can't be reached.
    #[error("not listed after {} s: {missing}", waited.as_secs())]
    NotListed {
        /// How long was waited.
        waited: Duration,
        /// Each kind with the last error.
        missing: String,
    },
    /// The lease is, or may soon be, another's.
    #[error("this process is not the leader any more")]
    LeaseLost,
    /// The times of the leader election make no sense.
    #[error(
        "a lease of {} s, a renew deadline of {} s and a retry period of {} s: each must be longer than the next, and none zero",
        timing.lease.as_secs(), timing.deadline.as_secs(), timing.retry.as_secs()
    )]
    Timing {
        /// The times.
        timing: Timing,
    },
    /// Planning or a write ended in a panic.
    #[error("a task of the controller ended in a panic")]
    Panicked(#[source] tokio::task::JoinError),
}

/// What a failed request comes to: the server's own words and the status code, or what kept it from answering.
pub(crate) fn request_text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} ({})", status.message, status.code),
        other => chain(other),
    }
}
