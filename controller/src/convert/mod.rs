//! API objects → slim core types.
//!
//! Each function takes a whole object, keeps what the planner needs and drops the rest.

mod objects;
mod shape;

pub use buffer_api::requests::AmountError as Error;
pub use objects::{
    buffer, claim, class, daemon_set, deployment, disruption_budget, job, node, pod, pool, quota,
    replica_set, replication_controller, stateful_set, template,
};
pub use shape::Interner;
