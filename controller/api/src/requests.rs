//! Effective requests of a pod, as kube-scheduler counts them.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, ContainerStatus, PodSpec, PodStatus, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity as Text,
};

use crate::{Quantity, quantity::ParseQuantityError};

/// Amounts by resource name; what is not named is zero.
pub type Resources = BTreeMap<String, Quantity>;

/// An amount that is no quantity.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("reading the amount of {resource}")]
pub struct AmountError {
    /// Name of the resource.
    pub resource: String,
    /// What is wrong with it.
    pub source: ParseQuantityError,
}

/// What a pod takes on a node: its containers (init containers run one by one, sidecars run along), pod-level
/// requests in place of theirs, and the overhead of its runtime class.
///
/// Requests that are absent while a limit is set are the limit, as the API server fills them in for pods; templates come
/// without that. While a pod is resized in place, the greater of old and new counts.
pub fn effective(spec: &PodSpec, status: Option<&PodStatus>) -> Result<Resources, AmountError> {
    let resize = Resize::new(status);
    let mut total = Resources::new();
    for container in &spec.containers {
        add(&mut total, &resize.requests(container)?);
    }
    let mut sidecars = Resources::new();
    let mut peak = Resources::new();
    for container in spec.init_containers.iter().flatten() {
        let requests = resize.requests(container)?;
        let mut running = sidecars.clone();
        add(&mut running, &requests);
        if is_sidecar(container) {
            add(&mut total, &requests);
            sidecars.clone_from(&running);
        }
        raise(&mut peak, &running);
    }
    raise(&mut total, &peak);
    pod_level(spec, status, &mut total)?;
    add(&mut total, &resources(spec.overhead.as_ref())?);
    Ok(total)
}

/// Whether an init container keeps running beside the others.
#[must_use]
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Amounts as exact quantities.
pub fn resources(amounts: Option<&BTreeMap<String, Text>>) -> Result<Resources, AmountError> {
    amounts
        .into_iter()
        .flatten()
        .map(|(resource, amount)| match Quantity::try_from(amount) {
            Ok(amount) => Ok((resource.clone(), amount)),
            Err(source) => Err(AmountError { resource: resource.clone(), source }),
        })
        .collect()
}

/// Requests, with limits where there is no request.
fn requests_or_limits(requirements: Option<&ResourceRequirements>) -> Result<Resources, AmountError> {
    let Some(requirements) = requirements else { return Ok(Resources::new()) };
    let mut requests = resources(requirements.limits.as_ref())?;
    requests.extend(resources(requirements.requests.as_ref())?);
    Ok(requests)
}

/// Puts pod-level requests in the place of the containers' sum.
///
/// Only cpu, memory and huge pages have pod-level amounts. A pod-level limit alone counts where no container requests the
/// resource, and for huge pages, which can't be overcommitted.
fn pod_level(spec: &PodSpec, status: Option<&PodStatus>, total: &mut Resources) -> Result<(), AmountError> {
    let Some(requirements) = &spec.resources else { return Ok(()) };
    let mut requests = resources(requirements.requests.as_ref())?;
    for (resource, limit) in resources(requirements.limits.as_ref())? {
        if !total.contains_key(&resource) || resource.starts_with("hugepages-") {
            requests.entry(resource).or_insert(limit);
        }
    }
    if !requests.is_empty()
        && let Some(status) = status
    {
        raise(&mut requests, &resources(status.allocated_resources.as_ref())?);
        let actual = status.resources.as_ref().and_then(|actual| actual.requests.as_ref());
        raise(&mut requests, &resources(actual)?);
    }
    let has_pod_level =
        |resource: &str| matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-");
    total.extend(requests.into_iter().filter(|(resource, _)| has_pod_level(resource)));
    Ok(())
}

/// How far a resize in place has come.
struct Resize<'a> {
    statuses: Vec<&'a ContainerStatus>,
    infeasible: bool,
}

impl<'a> Resize<'a> {
    fn new(status: Option<&'a PodStatus>) -> Self {
        let conditions = status.and_then(|status| status.conditions.as_ref());
        Self {
            statuses: status
                .into_iter()
                .flat_map(|status| [&status.container_statuses, &status.init_container_statuses])
                .flatten()
                .flatten()
                .filter(|status| status.resources.is_some())
                .collect(),
            infeasible: conditions.into_iter().flatten().any(|condition| {
                condition.type_ == "PodResizePending" && condition.reason.as_deref() == Some("Infeasible")
            }),
        }
    }

    /// Requests of a container. A resize that the node has refused does not count.
    fn requests(&self, container: &Container) -> Result<Resources, AmountError> {
        let wanted = requests_or_limits(container.resources.as_ref())?;
        let Some(status) = self.statuses.iter().find(|status| status.name == container.name) else {
            return Ok(wanted);
        };
        let mut requests = if self.infeasible { Resources::new() } else { wanted };
        raise(&mut requests, &requests_of(status.resources.as_ref())?);
        raise(&mut requests, &resources(status.allocated_resources.as_ref())?);
        Ok(requests)
    }
}

fn requests_of(requirements: Option<&ResourceRequirements>) -> Result<Resources, AmountError> {
    resources(requirements.and_then(|requirements| requirements.requests.as_ref()))
}

fn add(total: &mut Resources, more: &Resources) {
    for (resource, amount) in more {
        let sum = total.entry(resource.clone()).or_default();
        *sum = sum.plus(*amount);
    }
}

fn raise(total: &mut Resources, floor: &Resources) {
    for (resource, amount) in floor {
        let highest = total.entry(resource.clone()).or_default();
        *highest = (*highest).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};
    use similar_asserts::assert_eq;

    use super::*;

    fn requests(spec: Value, status: Value) -> Resources {
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let status: Option<PodStatus> = serde_json::from_value(status).unwrap();
        effective(&spec, status.as_ref()).unwrap()
    }

    fn container(name: &str, cpu: &str) -> Value {
        json!({"name": name, "resources": {"requests": {"cpu": cpu}}})
    }

    fn sidecar(name: &str, cpu: &str) -> Value {
        json!({"name": name, "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}})
    }

    #[rstest]
    #[case::nothing(json!({"containers": [{"name": "a"}]}), &[])]
    #[case::sum(json!({"containers": [container("a", "100m"), container("b", "200m")]}), &[("cpu", "300m")])]
    #[case::greatest_init_container(
        json!({"containers": [container("a", "100m")], "initContainers": [container("i", "1"), container("j", "2")]}),
        &[("cpu", "2")]
    )]
    #[case::small_init_container(
        json!({"containers": [container("a", "3")], "initContainers": [container("i", "1")]}),
        &[("cpu", "3")]
    )]
    #[case::sidecar_runs_along(
        json!({"containers": [container("a", "1")], "initContainers": [sidecar("s", "500m")]}),
        &[("cpu", "1500m")]
    )]
    #[case::init_container_beside_an_earlier_sidecar(
        json!({"containers": [container("a", "1")], "initContainers": [sidecar("s", "500m"), container("i", "2")]}),
        &[("cpu", "2500m")]
    )]
    #[case::init_container_before_the_sidecar(
        json!({"containers": [container("a", "1")], "initContainers": [container("i", "2"), sidecar("s", "500m")]}),
        &[("cpu", "2")]
    )]
    #[case::overhead(
        json!({"containers": [container("a", "1")], "overhead": {"cpu": "250m", "memory": "120Mi"}}),
        &[("cpu", "1250m"), ("memory", "120Mi")]
    )]
    #[case::limits_only(
        json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}]}),
        &[("cpu", "2"), ("memory", "1Gi")]
    )]
    #[case::request_below_limit(
        json!({"containers": [{"name": "a", "resources":
            {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}}]}),
        &[("cpu", "1"), ("memory", "1Gi")]
    )]
    #[case::extended_resource(
        json!({"containers": [{"name": "a", "resources": {"limits": {"example.com/gpu": "2"}}}]}),
        &[("example.com/gpu", "2")]
    )]
    #[case::pod_level_replaces_the_sum(
        json!({"containers": [container("a", "1")], "resources": {"requests": {"cpu": "4"}}}),
        &[("cpu", "4")]
    )]
    #[case::pod_level_below_the_sum(
        json!({"containers": [container("a", "1"), container("b", "1")], "resources": {"requests": {"cpu": "1500m"}}}),
        &[("cpu", "1500m")]
    )]
    #[case::pod_level_with_overhead(
        json!({"containers": [{"name": "a"}], "resources": {"requests": {"cpu": "4"}}, "overhead": {"cpu": "100m"}}),
        &[("cpu", "4100m")]
    )]
    #[case::pod_level_limit_alone(
        json!({"containers": [{"name": "a"}], "resources": {"limits": {"cpu": "3"}}}),
        &[("cpu", "3")]
    )]
    #[case::pod_level_limit_with_container_request(
        json!({"containers": [container("a", "1")], "resources": {"limits": {"cpu": "3", "memory": "1Gi"}}}),
        &[("cpu", "1"), ("memory", "1Gi")]
    )]
    #[case::pod_level_knows_no_extended_resources(
        json!({"containers": [{"name": "a"}], "resources": {"requests": {"example.com/gpu": "3"}}}),
        &[]
    )]
    fn of_a_template(#[case] spec: Value, #[case] wanted: &[(&str, &str)]) {
        let wanted: Resources =
            wanted.iter().map(|&(r, amount)| (r.to_owned(), amount.parse().unwrap())).collect();
        assert_eq!(requests(spec, Value::Null), wanted);
    }

    #[rstest]
    #[case::growing("1", "500m", "500m", "Deferred", "1")]
    #[case::shrinking("500m", "1", "1", "Deferred", "1")]
    #[case::allocated_but_not_yet_actual("500m", "500m", "2", "Deferred", "2")]
    #[case::refused("8", "1", "1", "Infeasible", "1")]
    fn while_resized(
        #[case] wanted: &str,
        #[case] actual: &str,
        #[case] allocated: &str,
        #[case] reason: &str,
        #[case] counted: &str,
    ) {
        let status = json!({
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
            "containerStatuses": [{
                "name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "resources": {"requests": {"cpu": actual}}, "allocatedResources": {"cpu": allocated},
            }],
        });
        let requests = requests(json!({"containers": [container("a", wanted)]}), status);
        assert_eq!(requests["cpu"], counted.parse().unwrap());
    }

    #[test]
    fn an_amount_that_is_none() {
        let spec: PodSpec = serde_json::from_value(json!({"containers": [container("a", "many")]})).unwrap();
        let error = effective(&spec, None).unwrap_err();
        assert_eq!(error.to_string(), "reading the amount of cpu");
        assert_eq!(error.source.to_string(), "\"many\" is not a quantity");
    }
}
