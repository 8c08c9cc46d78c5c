//! The result model of a conformance run and everything rendered from it.
//!
//! `report.json` is the only source: verdicts, the table, JUnit, Markdown, HTML and the badge are functions of it.
//!
//! * [`model`] is the format; [`Report::to_json`](model::Report::to_json) and
//!   [`Report::from_json`](model::Report::from_json) write and read it.
//! * A process that runs a scenario writes a [`Fragment`]; [`merge`](merge::merge) makes the report of a run of them,
//!   [`join`](merge::join) that of several shards.
//! * [`verdict`] says what follows, [`Report::verify`](model::Report::verify) whether a report says the same.
//! * `Report::to_table`, `to_junit`, `to_markdown`, `to_html` and `to_badge` are for readers and other programs.
//! * [`Comparison`] puts several reports beside each other.

mod error;
mod fragment;
mod json;
pub mod merge;
pub mod model;
mod order;
mod render;
#[cfg(test)]
mod samples;
pub mod verdict;
mod verify;

pub use error::ReportError;
pub use fragment::{Collected, Fragment, write_atomically};
pub use json::{schema, schema_json};
pub use render::{Comparison, TableStyle};
pub use verify::VerifyError;
