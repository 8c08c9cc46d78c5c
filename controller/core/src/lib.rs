//! Every decision of the reference controller as a pure function.
//!
//! [`plan`](plan::plan) takes a [`Snapshot`](snapshot::Snapshot) of the cluster and the time, and returns a
//! [`Plan`](plan::Plan): the statuses to write, the claims to create, the nodes to disrupt and when to look again.
//! Nothing here knows a client, a clock, a log or a task.
//!
//! One concept, one home:
//! * [`size`]: how many chunks; [`resolve`]: from a buffer to shape, size and `ReadyForProvisioning`; `quota`: what quotas leave of it;
//!   [`buffers`]: its whole status;
//! * [`requirements`]: label requirements; [`fit`]: may this pod be on that node; [`demand`]: what wants a place; [`place`]: who goes where;
//! * [`claims`]: what to buy; [`lifecycle`]: the life of a claim and its node; [`disrupt`]: who may go; [`pools`]: NodePools.

mod amounts;
mod assign;
mod conditions;
mod expected;
mod index;
mod offers;
mod quota;

pub mod buffers;
pub mod claims;
pub mod demand;
pub mod disrupt;
pub mod duration;
pub mod fit;
pub mod lifecycle;
pub mod place;
pub mod plan;
pub mod pools;
pub mod requirements;
pub mod resolve;
pub mod size;
pub mod snapshot;
