//! Whole objects.

use std::sync::Arc;

use buffer_api::{
    CapacityBuffer, FakeNodeClass, NodeClaim, NodePool, conditions, duration, labels, requests::resources,
};
use buffer_core::snapshot::{
    Buffer, Claim, DaemonSet, DisruptionBudget, Labels, Node, NodeClass, ObjectKey, Pod, Pool, Quota,
    Template, Workload,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        apps::v1::{self as apps, Deployment, ReplicaSet, StatefulSet},
        batch::v1::Job,
        core::v1::{self as core, PodTemplate, PodTemplateSpec},
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::Resource;

use super::{Error, Interner, shape::shape};
use crate::{
    cache::{Observed, version},
    kind::{Kind, ObjectRef},
};

/// `terminationGracePeriodSeconds` of a pod that says nothing.
const DEFAULT_GRACE: i64 = 30;

fn key(meta: &ObjectMeta) -> ObjectKey {
    ObjectKey {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
    }
}

fn observed<T>(kind: Kind, meta: &ObjectMeta, value: T) -> Observed<T> {
    Observed {
        object: ObjectRef::new(kind, key(meta)),
        version: version(meta.resource_version.as_deref()),
        owners: Vec::new(),
        protected_until: None,
        value,
    }
}

/// Annotations under `karpenter.sh/`.
fn own_annotations(meta: &mut ObjectMeta) -> Labels {
    let mut annotations = meta.annotations.take().unwrap_or_default();
    annotations.retain(|key, _| key.starts_with("karpenter.sh/"));
    annotations
}

/// A CapacityBuffer.
pub fn buffer(buffer: CapacityBuffer) -> Observed<Buffer> {
    let CapacityBuffer { metadata: meta, spec, status } = buffer;
    let value = Buffer {
        key: key(&meta),
        uid: meta.uid.clone().unwrap_or_default(),
        created: meta.creation_timestamp.as_ref().map(|time| time.0),
        generation: meta.generation.unwrap_or_default(),
        deleting: meta.deletion_timestamp.is_some(),
        spec,
        status: status.unwrap_or_default(),
    };
    observed(Kind::Buffer, &meta, value)
}

/// A ResourceQuota. What its controller has yet to look at bounds as its spec says.
pub fn quota(quota: core::ResourceQuota) -> Result<Observed<Quota>, Error> {
    let core::ResourceQuota { metadata: meta, spec, status } = quota;
    let (spec, status) = (spec.unwrap_or_default(), status.unwrap_or_default());
    let exists = |scope_name| core::ScopedResourceSelectorRequirement {
        scope_name,
        operator: "Exists".to_owned(),
        values: None,
    };
    let expressions = spec.scope_selector.and_then(|selector| selector.match_expressions);
    let value = Quota {
        key: key(&meta),
        hard: resources(status.hard.as_ref().or(spec.hard.as_ref()))?,
        used: resources(status.used.as_ref())?,
        scopes: spec
            .scopes
            .into_iter()
            .flatten()
            .map(exists)
            .chain(expressions.into_iter().flatten())
            .collect(),
    };
    Ok(observed(Kind::Quota, &meta, value))
}

/// A PodTemplate.
pub fn template(template: PodTemplate) -> Result<Observed<Template>, Error> {
    let PodTemplate { metadata: meta, template, .. } = template;
    let value = Template {
        key: key(&meta),
        generation: meta.generation.unwrap_or_default(),
        shape: template_shape(&meta, template)?,
    };
    Ok(observed(Kind::Template, &meta, value))
}

/// Shape of the pods that an object of `meta`'s namespace makes from a template.
fn template_shape(
    meta: &ObjectMeta,
    template: Option<PodTemplateSpec>,
) -> Result<buffer_core::snapshot::PodShape, Error> {
    let template = template.unwrap_or_default();
    let pod_labels = template.metadata.and_then(|meta| meta.labels).unwrap_or_default();
    shape(meta.namespace.clone().unwrap_or_default(), pod_labels, template.spec.unwrap_or_default(), None)
}

/// A Deployment.
pub fn deployment(deployment: Deployment) -> Result<Observed<Workload>, Error> {
    let spec = deployment.spec.unwrap_or_default();
    workload(Kind::Deployment, &deployment.metadata, spec.replicas, Some(spec.template))
}

/// A StatefulSet.
pub fn stateful_set(set: StatefulSet) -> Result<Observed<Workload>, Error> {
    let spec = set.spec.unwrap_or_default();
    workload(Kind::StatefulSet, &set.metadata, spec.replicas, Some(spec.template))
}

/// A ReplicaSet.
pub fn replica_set(set: ReplicaSet) -> Result<Observed<Workload>, Error> {
    let spec = set.spec.unwrap_or_default();
    workload(Kind::ReplicaSet, &set.metadata, spec.replicas, spec.template)
}

/// A ReplicationController, of the core group.
pub fn replication_controller(set: core::ReplicationController) -> Result<Observed<Workload>, Error> {
    let spec = set.spec.unwrap_or_default();
    workload(Kind::ReplicationController, &set.metadata, spec.replicas, spec.template)
}

/// A Job: its replicas are the pods that may run at the same time.
pub fn job(job: Job) -> Result<Observed<Workload>, Error> {
    let spec = job.spec.unwrap_or_default();
    workload(Kind::Job, &job.metadata, spec.parallelism, Some(spec.template))
}

fn workload(
    kind: Kind,
    meta: &ObjectMeta,
    replicas: Option<i32>,
    template: Option<PodTemplateSpec>,
) -> Result<Observed<Workload>, Error> {
    let group = match kind {
        Kind::ReplicationController => "",
        Kind::Job => "batch",
        _ => "apps",
    };
    let value = Workload {
        group: group.to_owned(),
        kind: kind.name().to_owned(),
        key: key(meta),
        replicas: replicas.unwrap_or(1),
        shape: template_shape(meta, template)?,
    };
    Ok(observed(kind, meta, value))
}

/// A DaemonSet.
pub fn daemon_set(set: apps::DaemonSet) -> Result<Observed<DaemonSet>, Error> {
    let template = set.spec.unwrap_or_default().template;
    let value = DaemonSet { key: key(&set.metadata), shape: template_shape(&set.metadata, Some(template))? };
    Ok(observed(Kind::DaemonSet, &set.metadata, value))
}

/// A PodDisruptionBudget.
pub fn disruption_budget(budget: PodDisruptionBudget) -> Observed<DisruptionBudget> {
    let value = DisruptionBudget {
        key: key(&budget.metadata),
        selector: budget.spec.unwrap_or_default().selector,
        allowed: budget.status.map_or(0, |status| status.disruptions_allowed),
    };
    observed(Kind::DisruptionBudget, &budget.metadata, value)
}

/// A pod.
///
/// A pod for which the scheduler has already nominated a node waits for its victims to leave: it is not counted as
/// unschedulable.
pub fn pod(pod: core::Pod, interner: &Interner, now: Timestamp) -> Result<Observed<Pod>, Error> {
    let core::Pod { metadata: mut meta, spec, status } = pod;
    let spec = spec.unwrap_or_default();
    let annotation = |key: &str| meta.annotations.as_ref().and_then(|all| all.get(key));
    let owned_by = |kind: &str| meta.owner_references.iter().flatten().any(|owner| owner.kind == kind);
    let started = status.as_ref().and_then(|status| status.start_time.as_ref());
    let (do_not_disrupt, protected_until) =
        protection(annotation(labels::DO_NOT_DISRUPT).map(String::as_str), started, now);
    let bound_at = status.as_ref().and_then(|status| {
        let mut conditions = status.conditions.iter().flatten();
        let scheduled = conditions.find(|own| own.type_ == "PodScheduled" && own.status == "True")?;
        scheduled.last_transition_time.as_ref().map(|time| time.0)
    });
    let unschedulable = status.as_ref().is_some_and(|status| {
        status.nominated_node_name.is_none()
            && status.conditions.iter().flatten().any(|condition| {
                condition.type_ == "PodScheduled"
                    && condition.status == "False"
                    && condition.reason.as_deref() == Some("Unschedulable")
            })
    });
    let daemon = owned_by("DaemonSet");
    let mirror = annotation("kubernetes.io/config.mirror").is_some() || owned_by("Node");
    let node = spec.node_name.clone().filter(|node| !node.is_empty());
    let grace_seconds = spec.termination_grace_period_seconds.unwrap_or(DEFAULT_GRACE);
    // the deletion timestamp is the end of the grace that was given
    let deleted_at = meta.deletion_timestamp.as_ref().and_then(|end| {
        let given = meta.deletion_grace_period_seconds.unwrap_or_default();
        end.0.checked_sub(SignedDuration::from_secs(given)).ok()
    });
    let gated = spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
    let pod_labels = meta.labels.take().unwrap_or_default();
    let shape = shape(meta.namespace.clone().unwrap_or_default(), pod_labels, spec, status.as_ref())?;
    let value = Pod {
        key: key(&meta),
        uid: meta.uid.clone().unwrap_or_default(),
        shape: interner.share(shape),
        unschedulable: unschedulable && node.is_none(),
        node,
        deleting: meta.deletion_timestamp.is_some(),
        daemon,
        mirror,
        do_not_disrupt,
        // the scheduler will not look at it
        created: meta.creation_timestamp.as_ref().filter(|_| !gated).map(|time| time.0),
        deleted_at,
        bound_at,
        grace_seconds,
    };
    Ok(Observed { protected_until, ..observed(Kind::Pod, &meta, value) })
}

/// Whether a pod forbids voluntary disruption now, and until when.
///
/// `true` forbids it for ever, a positive Go duration for that long after the pod has started; anything else is ignored.
fn protection(annotation: Option<&str>, started: Option<&Time>, now: Timestamp) -> (bool, Option<Timestamp>) {
    let Some(text) = annotation else { return (false, None) };
    if text == "true" {
        return (true, None);
    }
    let Ok(span) = duration::parse(text) else { return (false, None) };
    let Some(started) = started else { return (!span.is_zero(), None) };
    match started.0.checked_add(span) {
        Ok(end) if end > now => (true, Some(end)),
        Ok(_) => (false, None),
        // an end beyond the calendar
        Err(_) => (true, None),
    }
}

/// A node. Times of heartbeats, images, addresses and the like are left out, so that a heartbeat changes nothing.
pub fn node(node: core::Node) -> Result<Observed<Node>, Error> {
    let core::Node { metadata: mut meta, spec, status } = node;
    let (spec, status) = (spec.unwrap_or_default(), status.unwrap_or_default());
    let ready = status.conditions.iter().flatten().find(|condition| condition.type_ == "Ready");
    let value = Node {
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        labels: meta.labels.take().unwrap_or_default(),
        annotations: own_annotations(&mut meta),
        taints: spec.taints.unwrap_or_default(),
        unschedulable: spec.unschedulable.unwrap_or_default(),
        provider_id: spec.provider_id.filter(|id| !id.is_empty()),
        capacity: resources(status.capacity.as_ref())?,
        allocatable: resources(status.allocatable.as_ref())?,
        ready: ready.is_some_and(|condition| condition.status == "True"),
        ready_since: ready.and_then(|condition| condition.last_transition_time.as_ref()).map(|time| time.0),
        deleting: meta.deletion_timestamp.is_some(),
        finalizers: meta.finalizers.take().unwrap_or_default(),
    };
    let owners = meta.owner_references.take().unwrap_or_default();
    Ok(Observed { owners, ..observed(Kind::Node, &meta, value) })
}

/// A NodeClaim.
pub fn claim(claim: NodeClaim) -> Observed<Claim> {
    let NodeClaim { metadata: mut meta, spec, status } = claim;
    let value = Claim {
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        labels: meta.labels.take().unwrap_or_default(),
        annotations: own_annotations(&mut meta),
        created: meta.creation_timestamp.as_ref().map(|time| time.0),
        deleting: meta.deletion_timestamp.is_some(),
        deleted_at: meta.deletion_timestamp.as_ref().map(|time| time.0),
        finalizers: meta.finalizers.take().unwrap_or_default(),
        spec,
        status: status.unwrap_or_default(),
    };
    observed(Kind::Claim, &meta, value)
}

/// A NodePool.
pub fn pool(pool: NodePool) -> Observed<Pool> {
    let NodePool { metadata: meta, spec, status } = pool;
    let value = Pool {
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        generation: meta.generation.unwrap_or_default(),
        deleting: meta.deletion_timestamp.is_some(),
        spec,
        status: status.unwrap_or_default(),
    };
    observed(Kind::Pool, &meta, value)
}

/// A node class.
pub fn class(class: FakeNodeClass) -> Observed<NodeClass> {
    let status = class.status.unwrap_or_default();
    let ready = status.conditions.iter().any(|c| c.type_ == conditions::pool::READY && c.status == "True");
    let value = NodeClass {
        group: FakeNodeClass::group(&()).into_owned(),
        kind: FakeNodeClass::kind(&()).into_owned(),
        name: class.metadata.name.clone().unwrap_or_default(),
        ready,
        deleting: class.metadata.deletion_timestamp.is_some(),
        instance_types: Arc::new(status.instance_types),
        unavailable: status.unavailable,
    };
    observed(Kind::Class, &class.metadata, value)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};
    use similar_asserts::assert_eq;

    use super::*;

    fn pod_of(value: Value) -> Observed<Pod> {
        let now = "2030-01-01T01:00:00Z".parse().unwrap();
        pod(serde_json::from_value(value).unwrap(), &Interner::default(), now).unwrap()
    }

    #[rstest]
    #[case::bound(json!({"spec": {"nodeName": "n", "containers": []}}), false)]
    #[case::not_looked_at_yet(json!({"spec": {"containers": []}}), false)]
    #[case::unschedulable(
        json!({"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}}),
        true
    )]
    #[case::gated(
        json!({"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}}),
        false
    )]
    #[case::nominated(
        json!({"status": {"nominatedNodeName": "n",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}}),
        false
    )]
    fn unschedulable_pods(#[case] value: Value, #[case] unschedulable: bool) {
        assert_eq!(pod_of(value).value.unschedulable, unschedulable);
    }

    #[rstest]
    #[case::absent(json!({}), Value::Null, false, None)]
    #[case::for_ever(json!({"karpenter.sh/do-not-disrupt": "true"}), Value::Null, true, None)]
    #[case::not_a_duration(json!({"karpenter.sh/do-not-disrupt": "yes"}), Value::Null, false, None)]
    #[case::negative(json!({"karpenter.sh/do-not-disrupt": "-1h"}), Value::Null, false, None)]
    #[case::sign_inside(json!({"karpenter.sh/do-not-disrupt": "5s-3s"}), Value::Null, false, None)]
    #[case::beyond_all_bounds(json!({"karpenter.sh/do-not-disrupt": "99999999999999999999999h"}), Value::Null, false, None)]
    #[case::not_started(json!({"karpenter.sh/do-not-disrupt": "10m"}), Value::Null, true, None)]
    #[case::running(
        json!({"karpenter.sh/do-not-disrupt": "1h30m"}), json!("2030-01-01T00:00:00Z"), true, Some("2030-01-01T01:30:00Z")
    )]
    #[case::over(json!({"karpenter.sh/do-not-disrupt": "30m"}), json!("2030-01-01T00:00:00Z"), false, None)]
    fn do_not_disrupt(
        #[case] annotations: Value,
        #[case] started: Value,
        #[case] protected: bool,
        #[case] until: Option<&str>,
    ) {
        let pod = pod_of(json!({"metadata": {"annotations": annotations}, "status": {"startTime": started}}));
        assert_eq!(pod.value.do_not_disrupt, protected);
        assert_eq!(pod.protected_until, until.map(|text| text.parse().unwrap()));
    }

    #[test]
    fn a_pod_of_a_daemon_set_and_a_mirror_pod() {
        let owner = |kind: &str| json!([{"apiVersion": "v1", "kind": kind, "name": "x", "uid": "u"}]);
        let daemon = pod_of(json!({"metadata": {"ownerReferences": owner("DaemonSet")}})).value;
        assert_eq!((daemon.daemon, daemon.mirror), (true, false));
        let mirror = pod_of(json!({"metadata": {"ownerReferences": owner("Node")}})).value;
        assert_eq!((mirror.daemon, mirror.mirror), (false, true));
    }

    fn node_of(heartbeat: &str, version: &str, ready: &str) -> Observed<Node> {
        let value = json!({
            "metadata": {"name": "n", "uid": "u", "resourceVersion": version,
                "annotations": {"karpenter.sh/do-not-disrupt": "true", "example.com/heartbeat": heartbeat}},
            "spec": {"providerID": "fake://c/1", "taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {
                "allocatable": {"cpu": "1900m"}, "capacity": {"cpu": "2"},
                "conditions": [{"type": "Ready", "status": ready, "lastHeartbeatTime": heartbeat,
                    "lastTransitionTime": "2030-01-01T00:00:00Z"}],
            },
        });
        node(serde_json::from_value(value).unwrap()).unwrap()
    }

    #[test]
    fn a_heartbeat_changes_nothing_of_a_node() {
        let first = node_of("2030-01-01T00:00:10Z", "7", "True");
        let second = node_of("2030-01-01T00:00:20Z", "8", "True");
        assert_eq!(first.value, second.value);
        assert_eq!((first.version, second.version), (7, 8));
        assert_ne!(first.value, node_of("2030-01-01T00:00:10Z", "7", "Unknown").value);
        assert_eq!(first.value.annotations.len(), 1);
        assert!(first.value.ready && first.value.ready_since.is_some());
    }

    #[test]
    fn other_groups_than_apps() {
        let template = json!({"metadata": {"labels": {"app": "w"}}, "spec": {"containers": []}});
        let meta = json!({"name": "w", "namespace": "ns"});
        let set = json!({"metadata": meta, "spec": {"replicas": 4, "template": template}});
        let set = replication_controller(serde_json::from_value(set).unwrap()).unwrap().value;
        assert_eq!((set.group.as_str(), set.kind.as_str(), set.replicas), ("", "ReplicationController", 4));
        let job =
            json!({"metadata": meta, "spec": {"parallelism": 3, "completions": 9, "template": template}});
        let job = self::job(serde_json::from_value(job).unwrap()).unwrap().value;
        assert_eq!((job.group.as_str(), job.kind.as_str(), job.replicas), ("batch", "Job", 3));
    }

    #[test]
    fn a_workload_without_replicas_has_one() {
        let set = json!({"metadata": {"name": "w", "namespace": "ns"}, "spec": {
            "selector": {}, "template": {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": []}}}});
        let workload = deployment(serde_json::from_value(set).unwrap()).unwrap().value;
        assert_eq!(
            (workload.replicas, workload.kind.as_str(), workload.group.as_str()),
            (1, "Deployment", "apps")
        );
        assert_eq!((workload.shape.namespace.as_str(), workload.shape.labels.len()), ("ns", 1));
    }
}
