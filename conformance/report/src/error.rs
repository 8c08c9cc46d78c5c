//! What can go wrong with reports.

use std::path::PathBuf;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A file or folder could not be read or written.
    #[error("cannot {action} {path}")]
    Io {
        /// `read`, `write` or the like.
        action: &'static str,
        /// Which file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The text is no report of this version: not JSON, an unknown key, a wrong type.
    #[error("not a valid report (line {line}, column {column})", line = .0.line(), column = .0.column())]
    Format(#[from] serde_json::Error),
    /// The text says that it is of another version of the format.
    #[error("report has format {found:?}, this suite reads {wanted:?}")]
    Version {
        /// What it says.
        found: String,
        /// What is read here.
        wanted: &'static str,
    },
    /// Reports that were to be joined are not parts of one run.
    #[error("cannot join: {0}")]
    Join(String),
    /// JUnit could not be written.
    #[error("cannot write JUnit")]
    Junit(#[from] quick_junit::SerializeError),
    /// HTML could not be written.
    #[error("cannot write HTML")]
    Html(#[from] askama::Error),
}
