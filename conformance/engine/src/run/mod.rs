//! The runtime half: a scenario and a cluster in, verdicts out.
//!
//! Watches ([`watch`]) write what they see into the [`world`] of a scenario, with a time line on one clock. Steps ([`steps`]) write
//! objects through [`cluster`] and wait on the world ([`wait`]) for what they want: objects that match ([`matcher`],
//! [`expression`]), room for pods ([`oracle`], [`capacity`]), counts, events. What became of them is judged ([`outcome`]) and
//! everything that was created is removed ([`cleanup`]); [`runner`] holds it all together.

pub mod capacity;
pub mod cleanup;
pub mod cluster;
pub mod context;
pub mod expression;
pub mod hooks;
pub mod matcher;
pub mod oracle;
pub mod outcome;
pub mod pool;
pub mod runner;
pub mod steps;
pub mod timeline;
pub mod wait;
pub mod watch;
pub mod world;

pub use runner::{Runner, planned};
