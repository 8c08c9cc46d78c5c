//! The kinds that this controller reads, and references to their objects.

use std::fmt;

use buffer_core::snapshot::ObjectKey;

/// A kind that this controller watches.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    Buffer,
    Quota,
    Template,
    Deployment,
    StatefulSet,
    ReplicaSet,
    ReplicationController,
    Job,
    Pod,
    DaemonSet,
    DisruptionBudget,
    Node,
    Claim,
    Pool,
    Class,
}

impl Kind {
    /// Kind as the API spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Buffer => "CapacityBuffer",
            Self::Quota => "ResourceQuota",
            Self::Template => "PodTemplate",
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::ReplicaSet => "ReplicaSet",
            Self::ReplicationController => "ReplicationController",
            Self::Job => "Job",
            Self::Pod => "Pod",
            Self::DaemonSet => "DaemonSet",
            Self::DisruptionBudget => "PodDisruptionBudget",
            Self::Node => "Node",
            Self::Claim => "NodeClaim",
            Self::Pool => "NodePool",
            Self::Class => "FakeNodeClass",
        }
    }
}

/// An object: kind, namespace and name.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ObjectRef {
    /// Kind.
    pub kind: Kind,
    /// Namespace and name.
    pub key: ObjectKey,
}

impl ObjectRef {
    /// An object of a namespace.
    pub fn new(kind: Kind, key: ObjectKey) -> Self {
        Self { kind, key }
    }

    /// A cluster-scoped object.
    pub fn cluster(kind: Kind, name: &str) -> Self {
        Self { kind, key: ObjectKey { namespace: String::new(), name: name.to_owned() } }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ObjectKey { namespace, name } = &self.key;
        if namespace.is_empty() {
            write!(f, "{} {name}", self.kind.name())
        } else {
            write!(f, "{} {namespace}/{name}", self.kind.name())
        }
    }
}
