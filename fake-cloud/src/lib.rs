//! Turns NodeClaims into nodes without a cloud.
//!
//! A claim whose node class is a FakeNodeClass gets the cheapest offering that it allows, a Node, and a kubelet. That is either
//! a hollow one, which nobody can tell from a real one through the API: it keeps a lease, reports, and runs pods, but no
//! containers. Or it is a real one, in a container that joins a kind cluster.
//! All state is in the API: a cloud that is killed at any line and started again neither loses nor doubles an instance.
//!
//! What is decided is decided by pure functions:
//! * [`catalog`]: what is sold. [`offer`]: what a claim gets of it. [`launch`]: one purchase, with quota and faults.
//! * [`rules`]: the timing and the faults of a class. [`chance`]: chance that can be repeated.
//! * [`claim`]: what has to be done for a claim. [`node`], [`pod`]: what a hollow kubelet writes.
//! * [`kind`]: nodes that are containers with a real kubelet.
//!
//! [`run`] watches the cluster, asks them, and does what they say.

pub mod catalog;
pub mod chance;
pub mod claim;
mod config;
mod error;
pub mod identity;
pub mod ip;
pub mod kind;
pub mod launch;
pub mod node;
pub mod offer;
pub mod pod;
pub mod rules;
pub mod select;
mod service;

pub use config::Config;
pub use error::Error;
pub use service::run;
