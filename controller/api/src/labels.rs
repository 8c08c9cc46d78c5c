//! Label, annotation, taint and finalizer keys that more than one part uses.

/// Node and claim label: the NodePool they belong to.
pub const NODEPOOL: &str = "karpenter.sh/nodepool";
/// Node and offering label: `on-demand` or `spot`.
pub const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
/// Node label, `true` once the claim's labels and taints have been synced.
pub const REGISTERED: &str = "karpenter.sh/registered";
/// Node label, `true` once the node is ready for pods.
pub const INITIALIZED: &str = "karpenter.sh/initialized";
/// Taint (`NoExecute`) that a node is born with and loses at registration.
pub const UNREGISTERED_TAINT: &str = "karpenter.sh/unregistered";
/// Taint (`NoSchedule`) on a node that is about to be disrupted.
pub const DISRUPTED_TAINT: &str = "karpenter.sh/disrupted";
/// Annotation on pods and nodes that forbids voluntary disruption.
pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
/// Finalizer of the controller, on claims and nodes; goes when the node has been drained.
pub const TERMINATION_FINALIZER: &str = "karpenter.sh/termination";
/// Finalizer of the fake cloud, on claims; goes when the instance is away.
pub const INSTANCE_FINALIZER: &str = "bufconf.dev/instance";
/// Annotation of claims and pools: hash of the pool's template.
pub const NODEPOOL_HASH: &str = "karpenter.sh/nodepool-hash";
/// Annotation of claims: how [`NODEPOOL_HASH`] was made. Hashes of different versions are not compared.
pub const NODEPOOL_HASH_VERSION: &str = "karpenter.sh/nodepool-hash-version";
/// Value of [`NODEPOOL_HASH_VERSION`] here.
pub const HASH_VERSION: &str = "bufconf-v1";

/// Node label: instance type.
pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// Node label: zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// Node label: CPU architecture.
pub const ARCH: &str = "kubernetes.io/arch";
/// Node label: operating system.
pub const OS: &str = "kubernetes.io/os";
/// Node label: host name.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// Taint that the API server puts on a new node and the controller manager removes when it is ready.
pub const NOT_READY_TAINT: &str = "node.kubernetes.io/not-ready";
/// Taint on a node whose kubelet is silent.
pub const UNREACHABLE_TAINT: &str = "node.kubernetes.io/unreachable";
/// Taint on a node that an external cloud provider has yet to initialise.
pub const UNINITIALIZED_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// API group of the FakeNodeClass, and prefix of our own labels.
pub const BUFCONF_GROUP: &str = "bufconf.dev";
/// Node label and taint by which a scenario keeps its pool to itself.
pub const POOL: &str = "bufconf.dev/pool";
/// Label on every object that a run creates: the run's id.
pub const RUN: &str = "bufconf.dev/run";
/// Label on every object that a run creates: the scenario's id.
pub const SCENARIO: &str = "bufconf.dev/scenario";
