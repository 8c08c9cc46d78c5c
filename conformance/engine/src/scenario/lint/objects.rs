//! What a scenario may touch: its namespace, its pool, and nothing else.

use serde_json::Value;

use crate::{
    diagnostic::Position,
    scenario::{
        lift::{Bound, Faults},
        lint::{body, in_case, place},
        model::{Isolation, Scenario},
        object::{Manifest, Target},
        raw::Node,
        step::Step,
    },
};

/// Kinds without a namespace that scenarios have to do with.
const CLUSTER_SCOPED: [&str; 24] = [
    "APIService",
    "CSIDriver",
    "CSINode",
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "DeviceClass",
    "FlowSchema",
    "IngressClass",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
    "Namespace",
    "Node",
    "NodeClaim",
    "NodeOverlay",
    "NodePool",
    "PersistentVolume",
    "PriorityClass",
    "PriorityLevelConfiguration",
    "ResourceSlice",
    "RuntimeClass",
    "StorageClass",
    "VolumeAttachment",
];

/// Whether objects of a kind have no namespace, as far as the suite knows kinds.
fn is_cluster_scoped(kind: &str) -> bool {
    CLUSTER_SCOPED.contains(&kind)
        || kind.ends_with("NodeClass")
        || kind.starts_with("ValidatingAdmissionPolicy")
        || kind == "ValidatingWebhookConfiguration"
}

pub(super) fn check(scenario: &Scenario, step: &Bound<'_>, faults: &mut Faults<'_>) {
    if scenario.needs.isolation == Isolation::Own {
        return;
    }
    let node = body(step);
    match &step.step {
        Step::Apply(manifests) => {
            for (index, manifest) in manifests.0.iter().enumerate() {
                let node = node.items().get(index).unwrap_or(node);
                written(step, manifest, node, faults);
            }
        }
        Step::Create(create) => {
            written(step, &create.resource, node.get("resource").unwrap_or(node), faults);
        }
        Step::Update(update) => touched(step, &update.target(), node, faults),
        Step::Patch(patch) => touched(step, &patch.target(), node, faults),
        Step::Scale(scale) => touched(step, &scale.target(), node, faults),
        Step::Delete(delete) => touched(step, &delete.target(), node, faults),
        Step::Assert(assert) => looked_at(step, &assert.resource.target, node, faults),
        Step::Absent(absent) => looked_at(step, &absent.resource, node, faults),
        Step::Hold(hold) => {
            if let Some(expected) = &hold.resource {
                looked_at(step, &expected.target, node, faults);
            }
        }
        _ => {}
    }
    pool_wide(scenario, step, faults);
}

/// An object that is applied or created.
fn written(step: &Bound<'_>, manifest: &Manifest, node: &Node, faults: &mut Faults<'_>) {
    let Target { kind, name, namespace, .. } = &manifest.target;
    name_rule(step, kind, name, place(node, &["metadata", "name"]), faults);
    namespace_rule(step, namespace.as_deref(), place(node, &["metadata", "namespace"]), faults);
    let selector = manifest.body.pointer("/spec/template/spec/nodeSelector");
    let pool = selector.and_then(|selector| selector.get(buffer_api::labels::POOL)).and_then(Value::as_str);
    if kind == "DaemonSet" && pool != Some("${pool}") {
        let message = format!(
            "a DaemonSet takes room on every node: give it the node selector {}: \"${{pool}}\"",
            buffer_api::labels::POOL
        );
        faults.add(node.at, in_case(step, message));
    }
}

/// An object that is there and is changed.
fn touched(step: &Bound<'_>, target: &Target, node: &Node, faults: &mut Faults<'_>) {
    name_rule(step, &target.kind, &target.name, place(node, &["name"]), faults);
    namespace_rule(step, target.namespace.as_deref(), place(node, &["namespace"]), faults);
}

/// An object that is only looked at.
fn looked_at(step: &Bound<'_>, target: &Target, node: &Node, faults: &mut Faults<'_>) {
    let at = match node.get("resource") {
        Some(resource) if resource.get("namespace").is_some() => place(resource, &["namespace"]),
        Some(resource) => place(resource, &["metadata", "namespace"]),
        None => node.at,
    };
    namespace_rule(step, target.namespace.as_deref(), at, faults);
}

fn name_rule(step: &Bound<'_>, kind: &str, name: &str, at: Position, faults: &mut Faults<'_>) {
    let marked =
        ["${run}", "${pool}", "${namespace}", "${node."].iter().any(|variable| name.contains(variable));
    if is_cluster_scoped(kind) && !marked {
        let message = format!("a {kind} has no namespace: its name must contain `${{run}}` or `${{pool}}`");
        faults.add(at, in_case(step, message));
    }
}

fn namespace_rule(step: &Bound<'_>, namespace: Option<&str>, at: Position, faults: &mut Faults<'_>) {
    if let Some(namespace) = namespace
        && !namespace.starts_with("${namespace}")
    {
        let message =
            format!("the namespace `{namespace}` is somebody else's: only `isolation: own` may use it");
        faults.add(at, in_case(step, message));
    }
}

/// Without a pool all nodes of the plane are meant, and on a shared plane others make nodes too.
fn pool_wide(scenario: &Scenario, step: &Bound<'_>, faults: &mut Faults<'_>) {
    let counts_nodes = match &step.step {
        Step::Headroom(_) | Step::Probe(_) | Step::Nodes(_) | Step::Claims(_) => true,
        Step::Hold(hold) => hold.headroom.is_some() || hold.nodes_born.or(hold.nodes_lost).is_some(),
        _ => false,
    };
    if counts_nodes && !scenario.needs.wants_pool() && scenario.needs.isolation == Isolation::Shared {
        let message = "without a pool this looks at all nodes of the plane, where others run too: \
                       say `needs: {nodes: …}`, `{pool: create}` or `{isolation: quiet}`";
        faults.add(step.node.at, in_case(step, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes() {
        for kind in
            ["NodePool", "FakeNodeClass", "EC2NodeClass", "Namespace", "ValidatingAdmissionPolicyBinding"]
        {
            assert!(is_cluster_scoped(kind), "{kind}");
        }
        for kind in ["CapacityBuffer", "PodTemplate", "Deployment", "ResourceQuota", "LimitRange", "Role"] {
            assert!(!is_cluster_scoped(kind), "{kind}");
        }
    }
}
