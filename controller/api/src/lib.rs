//! Typed resources, condition names and CRD generation for the CapacityBuffer API.
//!
//! * [`capacity_buffer`]: `autoscaling.x-k8s.io` CapacityBuffer (v1beta1 stored, v1alpha1 served).
//! * [`karpenter`]: the subset of `karpenter.sh/v1` NodePool and NodeClaim that Karpenter documents.
//! * [`fake_node_class`]: `bufconf.dev/v1alpha1` FakeNodeClass, what the fake cloud sells.
//! * [`conditions`]: names, reasons and messages of every condition, in one place.
//! * [`labels`]: label, annotation, taint and finalizer keys.
//! * [`quantity`]: exact resource quantities. [`duration`]: time spans in Go's syntax.
//! * [`requests`]: what a pod takes on a node.
//! * [`crd`]: the CustomResourceDefinitions of all of these.

// Every printer column has the same keys as the next.
#![allow(clippy::duplicated_attributes)]

pub mod capacity_buffer;
pub mod conditions;
pub mod crd;
pub mod duration;
pub mod fake_node_class;
pub mod karpenter;
pub mod labels;
pub mod quantity;
pub mod requests;

pub use capacity_buffer::{CapacityBuffer, CapacityBufferSpec, CapacityBufferStatus};
pub use fake_node_class::{FakeNodeClass, FakeNodeClassSpec, FakeNodeClassStatus};
pub use karpenter::{NodeClaim, NodeClaimSpec, NodeClaimStatus, NodePool, NodePoolSpec, NodePoolStatus};
pub use quantity::Quantity;
