//! The runtime half: a scenario and a cluster in, verdicts out.

pub mod cluster;
pub mod expression;
pub mod matcher;
pub mod oracle;
pub mod timeline;
pub mod wait;
pub mod watch;
pub mod world;
