//! Scenario files in, verdicts out.

pub mod diagnostic;
pub mod implementation;
pub mod rows;
pub mod run;
pub mod scenario;
pub mod waits;
mod words;
