//! Scenario files in, verdicts out.

pub mod run;
