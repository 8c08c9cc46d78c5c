//! What a kubelet does with a pod, as pure functions of the pod, its node and the time.
//!
//! * [`requests`]: what the pod takes of its node.
//! * [`admit`]: whether the node may run it.
//! * [`state`]: what has to be done next.
//! * [`status`]: how that is written down.

pub mod admit;
pub mod requests;
pub mod state;
pub mod status;
