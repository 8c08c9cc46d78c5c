//! Every decision of the reference controller as a pure function.
//!
//! [`plan`](plan::plan) takes a [`Snapshot`](snapshot::Snapshot) of the cluster and the time, and returns a
//! [`Plan`](plan::Plan): the statuses to write, the claims to create, the nodes to disrupt and when to look again.
//! Nothing here knows a client, a clock, a log or a task.

pub mod plan;
pub mod snapshot;
