//! Publishes what a class sells.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use buffer_api::{
    FakeNodeClass, FakeNodeClassStatus,
    conditions::pool::READY,
    fake_node_class::{Backend, FaultKind, InstanceType},
    labels,
};
use buffer_client::chain;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{Api, ResourceExt, api::Patch, runtime::controller::Action};
use serde_json::json;

use super::{World, is_ours, machine, patched};
use crate::{
    catalog, claim,
    claim::elapsed,
    error::{Error, doing, is_gone, is_stale},
    rules::{Labels, Rules},
};

/// How long until it is looked again whether a backend that is missed has come; six times as long, whether one has gone.
const MISSED: Duration = Duration::from_secs(10);

/// Whether the class is Ready as it is now.
pub(super) fn is_ready(class: &FakeNodeClass) -> bool {
    is_found(class, "True")
}

/// Whether the class can't be used as it is now.
pub(super) fn is_refused(class: &FakeNodeClass) -> bool {
    is_found(class, "False")
}

fn is_found(class: &FakeNodeClass, ready: &str) -> bool {
    let conditions = class.status.iter().flat_map(|status| &status.conditions);
    let mut now = conditions.filter(|c| c.observed_generation == class.metadata.generation);
    now.any(|c| c.type_ == READY && c.status == ready)
}

/// Looks at a class.
pub(super) async fn look(class: Arc<FakeNodeClass>, world: Arc<World>) -> Result<Action, Error> {
    let _alone = world.publishing.lock().await;
    let class = world.own_classes.newest(class);
    let now = Timestamp::now();
    let before = class.status.clone().unwrap_or_default();
    let backend = world.backend_of(&class);
    let trouble = machine::unavailable(&world, backend).await;
    let (status, rules) = refresh(&class, backend, trouble.as_deref(), now);
    let status = match rules {
        Some(rules) => strike(&world, &class, &rules, status),
        None => status,
    };
    // nobody tells when Docker comes or goes
    let look = (backend == Backend::Kind).then_some(if trouble.is_some() { MISSED } else { MISSED * 6 });
    let next = status.unavailable.iter().map(|lack| elapsed(now, lack.until.0)).chain(look).min();
    if status != before && publish(&world, &class, &status, now).await?.is_none() {
        return Ok(Action::requeue(Duration::from_secs(1)));
    }
    Ok(next.map_or_else(Action::await_change, Action::requeue))
}

/// The status that a class should have, apart from new strikes; and its rules, if they make sense.
fn refresh(
    class: &FakeNodeClass,
    backend: Backend,
    trouble: Option<&str>,
    now: Timestamp,
) -> (FakeNodeClassStatus, Option<Rules>) {
    let mut status = class.status.clone().unwrap_or_default();
    let read = match trouble {
        Some(why) => Err(("BackendNotAvailable", why.to_owned())),
        None => read(class, backend),
    };
    let (ready, reason, message) = match &read {
        Ok((types, _)) => {
            status.instance_types.clone_from(types);
            ("True", READY, format!("{} instance types", types.len()))
        }
        Err((reason, message)) => ("False", *reason, message.clone()),
    };
    if let Ok((types, rules)) = &read {
        // what no fault makes unavailable any more can be bought again
        status.unavailable.retain(|lack| {
            let of_offering = [
                (buffer_api::labels::INSTANCE_TYPE, &lack.instance_type),
                (buffer_api::labels::ZONE, &lack.zone),
                (buffer_api::labels::CAPACITY_TYPE, &lack.capacity_type),
            ];
            let labels: Labels = of_offering.map(|(k, v)| (k.to_owned(), v.clone())).into();
            lack.until.0 > now
                && rules.may_lack_capacity(&labels)
                && types.iter().any(|t| t.name == lack.instance_type)
        });
    }
    let before = status.conditions.iter().find(|c| c.type_ == READY);
    let since = before.filter(|c| c.status == ready).map_or(Time(now), |c| c.last_transition_time.clone());
    status.conditions = vec![Condition {
        type_: READY.to_owned(),
        status: ready.to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: since,
        observed_generation: class.metadata.generation,
    }];
    (status, read.ok().map(|(_, rules)| rules))
}

/// What the class sells and its rules, or reason and message of its not being Ready.
fn read(
    class: &FakeNodeClass,
    backend: Backend,
) -> Result<(Vec<InstanceType>, Rules), (&'static str, String)> {
    let name = class.spec.catalog.as_deref().unwrap_or(catalog::DEFAULT);
    let mut types = catalog::instance_types(name).map_err(|e| ("CatalogNotFound", chain(&e)))?;
    if backend == Backend::Kind {
        if class.spec.timing.ready.is_some()
            || class.spec.faults.iter().any(|f| f.kind == FaultKind::NeverReady)
        {
            let why = "a real kubelet is Ready when it is; leave out timing.ready and the fault neverReady";
            return Err(("InvalidSpec", why.to_owned()));
        }
        types.retain(runs_here);
    }
    let rules = Rules::parse(&class.spec).map_err(|e| ("InvalidSpec", chain(&e)))?;
    Ok((types, rules))
}

/// Whether containers of this host can be of an instance type.
fn runs_here(instance_type: &InstanceType) -> bool {
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    [(labels::ARCH, arch), (labels::OS, "linux")].iter().all(|(key, value)| {
        let mut requirements = instance_type.requirements.iter();
        requirements.all(|r| r.key != *key || r.values.iter().flatten().any(|allowed| allowed == value))
    })
}

/// Adds the strikes of faults with a count at instances that are there, and forgets those of faults that are gone.
fn strike(
    world: &World,
    class: &FakeNodeClass,
    rules: &Rules,
    mut status: FakeNodeClassStatus,
) -> FakeNodeClassStatus {
    let mut claims = world.claims.state();
    claims.retain(|claim| is_ours(claim) && claim.spec.node_class_ref.name == class.name_any());
    claims.sort_by_key(|claim| claim.name_any());
    let names: BTreeSet<String> = claims.iter().map(|claim| claim.name_any()).collect();
    status.struck = rules.prune(&status.struck, |name| names.contains(name));
    for claim in claims.iter().filter(|claim| claim::instance(claim).is_some()) {
        let labels = claim::fault_labels(claim);
        rules.strike_instance(&mut status.struck, claim::name(claim), &labels, false);
    }
    status
}

/// Writes a class's status, which was derived from `class`; `None` if the class has changed meanwhile. The caller holds
/// the lock for publishing.
pub(super) async fn publish(
    world: &World,
    class: &FakeNodeClass,
    status: &FakeNodeClassStatus,
    now: Timestamp,
) -> Result<Option<Arc<FakeNodeClass>>, Error> {
    let mut changes = json!({
        "unavailable": status.unavailable,
        "struck": status.struck,
        "conditions": status.conditions,
    });
    // the long list travels only when it changes
    if class.status.as_ref().is_none_or(|before| before.instance_types != status.instance_types) {
        changes["instanceTypes"] = json!(status.instance_types);
    }
    let patch = json!({
        "metadata": {"resourceVersion": class.metadata.resource_version},
        "status": changes,
    });
    let classes: Api<FakeNodeClass> = Api::all(world.client.clone());
    match classes.patch_status(&class.name_any(), &patched(), &Patch::Merge(patch)).await {
        Ok(class) => Ok(Some(world.own_classes.put(class))),
        Err(error) if is_stale(&error) || is_gone(&error) => {
            tracing::debug!(class = class.name_any(), %now, "the class has changed meanwhile");
            Ok(None)
        }
        Err(error) => Err(doing("writing the status of a node class")(error)),
    }
}

#[cfg(test)]
mod tests {
    use buffer_api::{
        FakeNodeClassSpec,
        fake_node_class::{Backend, Delay, Fault, FaultKind, Timing, UnavailableOffering},
    };
    use rstest::rstest;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn class(spec: FakeNodeClassSpec) -> FakeNodeClass {
        let mut class = FakeNodeClass::new("default", spec);
        class.metadata.generation = Some(3);
        class
    }

    fn ready(status: &FakeNodeClassStatus) -> (&str, &str, &str) {
        let condition = &status.conditions[0];
        (&condition.status, &condition.reason, &condition.message)
    }

    #[test]
    fn sells_the_default_catalogue() {
        let mut class = class(FakeNodeClassSpec::default());
        let (status, _) = refresh(&class, Backend::Hollow, None, at(5));
        assert_eq!(ready(&status), ("True", "Ready", "144 instance types"));
        class.status = Some(status.clone());
        assert!(is_ready(&class));
        assert_eq!(refresh(&class, Backend::Hollow, None, at(9)).0, status, "nothing new, nothing to write");
        class.metadata.generation = Some(4);
        assert!(!is_ready(&class), "what was Ready was another spec");
    }

    #[rstest]
    #[case(FakeNodeClassSpec { catalog: Some("big".to_owned()), ..Default::default() }, "CatalogNotFound", "there is no catalogue \"big\"; the nearest name is \"default\"")]
    #[case(
        FakeNodeClassSpec {
            timing: Timing { ready: Some(Delay { min: "soon".to_owned(), max: None }), ..Default::default() },
            ..Default::default()
        },
        "InvalidSpec",
        "spec.timing.ready: \"soon\" is not a duration"
    )]
    fn not_ready(#[case] spec: FakeNodeClassSpec, #[case] reason: &str, #[case] message: &str) {
        let (status, rules) = refresh(&class(spec), Backend::Hollow, None, at(5));
        let (is, because, text) = ready(&status);
        assert_eq!((is, because), ("False", reason));
        assert!(text.starts_with(message), "{text}");
        assert!(rules.is_none() && status.instance_types.is_empty());
    }

    #[test]
    fn kind_sells_what_the_host_can_run() {
        let mut class = class(FakeNodeClassSpec::default());
        let (status, _) = refresh(&class, Backend::Kind, None, at(5));
        assert_eq!(ready(&status), ("True", "Ready", "36 instance types"));
        let (status, _) = refresh(&class, Backend::Kind, Some("no Docker"), at(5));
        assert_eq!(ready(&status), ("False", "BackendNotAvailable", "no Docker"));
        class.spec.timing.ready = Some(Delay { min: "1s".to_owned(), max: None });
        let (status, _) = refresh(&class, Backend::Kind, None, at(5));
        assert_eq!(ready(&status).1, "InvalidSpec");
    }

    #[test]
    fn availability_comes_back() {
        let lack = |zone: &str, until| UnavailableOffering {
            instance_type: "c-1x-amd64-linux".to_owned(),
            zone: zone.to_owned(),
            capacity_type: "spot".to_owned(),
            until: Time(at(until)),
        };
        let fault = Fault {
            kind: FaultKind::InsufficientCapacity,
            selector: [(buffer_api::labels::ZONE.to_owned(), "test-zone-a".to_owned())].into(),
            ..Fault::default()
        };
        let mut class = class(FakeNodeClassSpec { faults: vec![fault], ..Default::default() });
        class.status = Some(FakeNodeClassStatus {
            unavailable: vec![lack("test-zone-a", 100), lack("test-zone-a", 50), lack("test-zone-b", 100)],
            ..Default::default()
        });
        let (status, _) = refresh(&class, Backend::Hollow, None, at(60));
        similar_asserts::assert_eq!(status.unavailable, vec![lack("test-zone-a", 100)]);
    }
}
