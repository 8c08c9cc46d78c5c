//! Scenario files in, verdicts out.
