//! Scenario files in, verdicts out.

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
