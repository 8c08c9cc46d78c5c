//! API objects → slim core types.
//!
//! Each function takes a whole object, keeps what the planner needs and drops the rest.

mod objects;
mod requests;
mod shape;

pub use objects::{
    buffer, claim, class, daemon_set, deployment, node, pod, pool, replica_set, stateful_set, template,
};
pub use shape::Interner;

use buffer_api::quantity::ParseQuantityError;

/// Why an object can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An amount that is no quantity.
    #[error("reading the amount of {resource}")]
    Quantity {
        /// Name of the resource.
        resource: String,
        /// What is wrong with it.
        source: ParseQuantityError,
    },
}
