//! Errors and their exit codes.

use std::fmt::Display;

/// What ends a command early, with the exit code that says so.
#[derive(Debug)]
pub struct Failure {
    /// Exit code.
    pub code: u8,
    /// What went wrong.
    pub error: anyhow::Error,
}

/// Wrong arguments or files.
pub const USAGE: u8 = 2;
/// Nothing was selected.
pub const NOTHING_RAN: u8 = 4;
/// A report that is none, or that contradicts itself.
pub const BAD_REPORT: u8 = 6;
/// The cluster or something else around the suite failed.
pub const ENVIRONMENT: u8 = 5;

impl Failure {
    /// Wrong arguments or files: exit code 2.
    pub fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self { code: USAGE, error: error.into() }
    }

    /// Nothing was selected: exit code 4.
    pub fn nothing(message: impl Display) -> Self {
        Self { code: NOTHING_RAN, error: anyhow::anyhow!("{message}") }
    }

    /// A report that is none, or that contradicts itself: exit code 6.
    pub fn report(error: impl Into<anyhow::Error>) -> Self {
        Self { code: BAD_REPORT, error: error.into() }
    }

    /// The cluster or something else around the suite failed: exit code 5.
    pub fn environment(error: impl Into<anyhow::Error>) -> Self {
        Self { code: ENVIRONMENT, error: error.into() }
    }
}

impl From<test_cluster::Error> for Failure {
    fn from(error: test_cluster::Error) -> Self {
        let usage = matches!(
            error,
            test_cluster::Error::UnknownMinor { .. }
                | test_cluster::Error::BadName(_)
                | test_cluster::Error::OtherGround(_)
                | test_cluster::Error::NotDisposable { .. }
                // No such kubeconfig, or it makes no sense. A server that does not answer is `Unreachable`.
                | test_cluster::Error::Client(_)
        );
        if usage { Self::usage(error) } else { Self::environment(error) }
    }
}
