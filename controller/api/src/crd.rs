//! The CustomResourceDefinitions of this API.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::{CapacityBuffer, FakeNodeClass, NodeClaim, NodePool};

/// All CustomResourceDefinitions, in the order of their names.
#[must_use]
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![CapacityBuffer::crd(), FakeNodeClass::crd(), NodeClaim::crd(), NodePool::crd()]
}
