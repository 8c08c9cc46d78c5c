//! Leader election by a Lease (`coordination.k8s.io/v1`), and the fence that keeps everybody else from writing.
//!
//! * [`elector`]: the rules, a pure state machine: what is known of the lease × the clock → what to do next.
//! * [`fence`]: until when this process may write. The client asks it right before each write is sent, repetitions too.
//! * [`election`]: reads, watches and writes the Lease as the rules say.
//!
//! Only the own clock counts. A follower waits for the lease's duration from the moment at which *it* saw the lease change; a
//! leader stops at the renew deadline, counted from the moment at which it *sent* the last renewal that was answered. The
//! lease was written between the two, so the leader has stopped before anybody takes over, whatever is delayed or lost, as long
//! as no clock runs more than (duration / deadline) times as fast as another. A write that the system has taken
//! from the process before it was stopped can't be called back; it may still arrive later.
//!
//! A lost lease ends the process: what it knows and has on its way belongs to another time.

mod election;
mod elector;
mod fence;

pub use election::{Election, identity};
pub use elector::Timing;
pub use fence::{Fence, Fenced};

#[cfg(test)]
mod tests;
