//! Condition types, reasons and messages of every resource, in one place.
//!
//! Source: what Karpenter documents (`ReadyForProvisioning`, `Provisioning`, the claim's life),
//! and Cluster Autoscaler for `LimitedByQuotas`.

/// Condition types of a CapacityBuffer.
pub mod buffer {
    /// The reference was resolved and the number of chunks computed.
    pub const READY_FOR_PROVISIONING: &str = "ReadyForProvisioning";
    /// Every chunk fits on nodes that are ready now.
    pub const PROVISIONING: &str = "Provisioning";
    /// A ResourceQuota holds the number of chunks down.
    pub const LIMITED_BY_QUOTAS: &str = "LimitedByQuotas";

    /// `ReadyForProvisioning=True`.
    pub const RESOLVED: &str = "Resolved";
    /// Message of [`RESOLVED`].
    pub const RESOLVED_MESSAGE: &str = "Pod template resolved successfully";
    /// The PodTemplate does not exist.
    pub const POD_TEMPLATE_NOT_FOUND: &str = "PodTemplateNotFound";
    /// The workload does not exist.
    pub const SCALABLE_REF_NOT_FOUND: &str = "ScalableRefNotFound";
    /// Anything else that keeps a reference from being resolved.
    pub const RESOLUTION_FAILED: &str = "ResolutionFailed";

    /// `Provisioning=True`.
    pub const FITS_EXISTING_CAPACITY: &str = "FitsExistingCapacity";
    /// Some chunks need nodes that are not ready yet, or can't be had.
    pub const REQUIRES_NEW_CAPACITY: &str = "RequiresNewCapacity";
    /// `ReadyForProvisioning` is not True.
    pub const NOT_READY_FOR_PROVISIONING: &str = "NotReadyForProvisioning";
    /// Message of [`NOT_READY_FOR_PROVISIONING`].
    pub const NOT_READY_MESSAGE: &str = "Buffer is not ReadyForProvisioning";
    /// The buffer asks for nothing.
    pub const BUFFER_EMPTY: &str = "BufferEmpty";
    /// Message of [`BUFFER_EMPTY`].
    pub const EMPTY_MESSAGE: &str = "Buffer has zero desired replicas";

    /// Reason of [`LIMITED_BY_QUOTAS`], limited or not.
    pub const QUOTAS_ALLOCATED: &str = "ResourceQuotasAllocated";

    /// Message of `LimitedByQuotas=True`.
    #[must_use]
    pub fn limited_message(wanted: i32, allowed: i32, quotas: &[&str]) -> String {
        format!("Buffer replicas limited from {wanted} to {allowed} due to quotas: {}", quotas.join(", "))
    }

    /// Message of [`FITS_EXISTING_CAPACITY`].
    #[must_use]
    pub fn fits_message(desired: i32) -> String {
        format!("All {desired} virtual pods fit on existing capacity")
    }

    /// Message of [`REQUIRES_NEW_CAPACITY`].
    #[must_use]
    pub fn requires_message(new: i32, desired: i32, failed: i32) -> String {
        format!("{new}/{desired} virtual pods required new capacity, {failed} failed")
    }
}

/// Condition types and reasons of a NodeClaim.
pub mod claim {
    /// The instance runs.
    pub const LAUNCHED: &str = "Launched";
    /// Its node carries the claim's labels and taints.
    pub const REGISTERED: &str = "Registered";
    /// Its node takes pods.
    pub const INITIALIZED: &str = "Initialized";
    /// No pod came to its node or left it for the pool's `consolidateAfter`.
    pub const CONSOLIDATABLE: &str = "Consolidatable";
    /// It is not as its pool wants it any more.
    pub const DRIFTED: &str = "Drifted";
    /// `Drifted=True`: the pool's template has changed.
    pub const NODE_POOL_DRIFTED: &str = "NodePoolDrifted";
    /// `Drifted=True`: the pool's requirements no longer admit it.
    pub const REQUIREMENTS_DRIFTED: &str = "RequirementsDrifted";
    /// `Drifted=True`: its instance type is not sold any more.
    pub const INSTANCE_TYPE_NOT_FOUND: &str = "InstanceTypeNotFound";
    /// `Launched=False`: all offerings of the claim failed.
    pub const INSUFFICIENT_CAPACITY: &str = "InsufficientCapacity";
    /// `Launched=Unknown`: the purchase failed and is tried again.
    pub const LAUNCH_FAILED: &str = "LaunchFailed";
    /// `Launched=Unknown`: the instance has an identity and is starting.
    pub const LAUNCHING: &str = "Launching";
    /// The machine could not join the cluster; another one is tried.
    pub const JOIN_FAILED: &str = "JoinFailed";
    /// `Launched=Unknown`: the node class sells no more instances for now.
    pub const QUOTA_EXCEEDED: &str = "QuotaExceeded";
    /// `Launched=Unknown`: the node class does not exist (yet).
    pub const NODE_CLASS_NOT_FOUND: &str = "NodeClassNotFound";
    /// `Launched=Unknown`: the node class can't be bought from for now.
    pub const NODE_CLASS_NOT_READY: &str = "NodeClassNotReady";
}

/// Condition types and reasons of NodePools and node classes.
pub mod pool {
    /// Usable.
    pub const READY: &str = "Ready";
    /// The node class was found and is ready.
    pub const NODE_CLASS_READY: &str = "NodeClassReady";
    /// The node class does not exist or is of a kind that nobody here serves.
    pub const NODE_CLASS_NOT_FOUND: &str = "NodeClassNotFound";
    /// The pool's values make sense.
    pub const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
}

/// Event on a node, and its claim, that buffer pods keep from being consolidated.
pub const UNCONSOLIDATABLE_EVENT: &str = "Unconsolidatable";

/// Event on a node, and its claim, that should be disrupted and can't be.
pub const DISRUPTION_BLOCKED_EVENT: &str = "DisruptionBlocked";

/// Event on a node, and its claim, that goes.
pub const DISRUPTION_TERMINATING_EVENT: &str = "DisruptionTerminating";

/// Message of [`UNCONSOLIDATABLE_EVENT`] for buffer pods.
#[must_use]
pub fn has_buffer_pods(node: &str) -> String {
    format!("Node \"{node}\" has buffer pods")
}
