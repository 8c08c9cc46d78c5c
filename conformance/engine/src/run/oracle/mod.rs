//! The capacity oracle: how many copies of a pod fit now on the nodes that are there.
//!
//! The fit test is deliberately this suite's own and shares nothing but exact arithmetic with any subject: a suite that
//! shares its subject's bugs can't find them. What it does not model ([`NotJudged`]) makes a scenario *unknown*, never a
//! violation.
//!
//! * [`requests`]: what one pod takes, by the scheduler's rules.
//! * [`state`]: nodes and pods, reduced to what the oracle reads.
//! * [`fit`]: whether a pod may be on a node at all.
//! * [`headroom`]: how many copies fit, with a truth table.

pub mod fit;
pub mod headroom;
pub mod requests;
pub mod state;

/// Why the oracle can't say anything about a pod.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NotJudged {
    /// A quantity of the template can't be read.
    #[error("the template's {0}")]
    Quantity(#[from] buffer_api::quantity::ParseQuantityError),
    /// The template uses a scheduling rule that the oracle does not model.
    #[error("the oracle does not model {0}")]
    Rule(&'static str),
    /// A pod that takes a part of a node, nobody knows which.
    #[error("the requests of the pod {0} can't be read")]
    Pod(String),
    /// The template has no pod spec.
    #[error("the template has no pod spec")]
    NoSpec,
}
