//! Scenario files in, verdicts out.
//!
//! The language half reads files: [`catalogue`] holds the checked scenarios of [`scenario`], [`implementation`] is the
//! declaration of a subject, [`applicability`] says before a run which scenarios it is asked, [`waits`] and [`rows`] are the
//! tables of named waits and of requirements, and [`diagnostic`] is how a fault in a file is shown. The runtime half, [`run`],
//! takes a scenario and a cluster and gives verdicts. Neither starts anything but the hooks of a declaration.

pub mod applicability;
pub mod catalogue;
pub mod diagnostic;
pub mod document;
pub mod implementation;
pub mod rows;
pub mod run;
pub mod scenario;
pub mod schema;
pub mod waits;
mod words;
