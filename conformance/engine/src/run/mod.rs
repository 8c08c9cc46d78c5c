//! The runtime half: a scenario and a cluster in, verdicts out.

pub mod expression;
pub mod matcher;
pub mod oracle;
