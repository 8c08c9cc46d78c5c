//! What one pod takes, by the rules of kube-scheduler and of the API server's defaults.

use std::collections::BTreeMap;

use buffer_api::{Quantity, quantity::ParseQuantityError};
use k8s_openapi::{
    api::core::v1::{Container, PodSpec},
    apimachinery::pkg::api::resource::Quantity as Written,
};

/// Amounts by resource name; a resource that is not named is zero.
pub type Requests = BTreeMap<String, Quantity>;

/// The effective requests of a pod.
///
/// * a container's missing request is its limit (API defaults);
/// * containers and restartable init containers (sidecars) add up; each other init container needs its own requests
///   beside the sidecars that started before it; the greater of the two counts, by resource;
/// * requests of the pod as a whole replace those sums for CPU, memory and huge pages;
/// * the runtime's overhead comes on top.
///
/// Source: Kubernetes, "Resource sharing within containers" and "Pod-level resources".
pub fn effective(spec: &PodSpec) -> Result<Requests, ParseQuantityError> {
    let mut running = Requests::new();
    for container in &spec.containers {
        add(&mut running, &of_container(container)?);
    }
    let mut sidecars = Requests::new();
    let mut starting = Requests::new();
    for container in spec.init_containers.iter().flatten() {
        let own = of_container(container)?;
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut sidecars, &own);
            raise(&mut starting, &sidecars);
        } else {
            let mut needed = sidecars.clone();
            add(&mut needed, &own);
            raise(&mut starting, &needed);
        }
    }
    add(&mut running, &sidecars);
    raise(&mut running, &starting);

    if let Some(pod) = &spec.resources {
        // a limit of the pod stands for a request only where no container asks for that resource
        let limits = read(pod.limits.as_ref())?.into_iter().filter(|(name, _)| !running.contains_key(name));
        let whole: Requests = limits.chain(read(pod.requests.as_ref())?).collect();
        running.extend(whole.into_iter().filter(|(name, _)| for_whole_pods(name)));
    }
    add(&mut running, &read(spec.overhead.as_ref())?);
    Ok(running)
}

fn of_container(container: &Container) -> Result<Requests, ParseQuantityError> {
    let Some(resources) = &container.resources else {
        return Ok(Requests::new());
    };
    let mut requests = read(resources.limits.as_ref())?;
    requests.extend(read(resources.requests.as_ref())?);
    Ok(requests)
}

fn for_whole_pods(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

/// Reads amounts as written.
pub fn read(amounts: Option<&BTreeMap<String, Written>>) -> Result<Requests, ParseQuantityError> {
    amounts
        .into_iter()
        .flatten()
        .map(|(name, amount)| Ok((name.clone(), Quantity::try_from(amount)?)))
        .collect()
}

/// Adds `more` to `sum`, by resource.
pub fn add(sum: &mut Requests, more: &Requests) {
    for (name, amount) in more {
        let entry = sum.entry(name.clone()).or_default();
        *entry = entry.plus(*amount);
    }
}

fn raise(most: &mut Requests, other: &Requests) {
    for (name, amount) in other {
        let entry = most.entry(name.clone()).or_default();
        *entry = (*entry).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn container(cpu: &str) -> Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu}}})
    }

    fn sidecar(cpu: &str) -> Value {
        json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}})
    }

    #[rstest]
    #[case::nothing(json!({"containers": [{"name": "c"}]}), json!({}))]
    #[case::sum(json!({"containers": [container("1"), container("500m")]}), json!({"cpu": "1500m"}))]
    #[case::limit_stands_for_request(
        json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "250m"}}}]}),
        json!({"cpu": "250m", "memory": "1073741824"})
    )]
    #[case::init_is_greater(json!({"containers": [container("1")], "initContainers": [container("4")]}), json!({"cpu": "4"}))]
    #[case::init_is_smaller(json!({"containers": [container("5")], "initContainers": [container("4")]}), json!({"cpu": "5"}))]
    #[case::inits_do_not_add_up(
        json!({"containers": [container("1")], "initContainers": [container("2"), container("2")]}),
        json!({"cpu": "2"})
    )]
    #[case::sidecars_run_along(
        json!({"containers": [container("1")], "initContainers": [sidecar("1"), sidecar("2")]}),
        json!({"cpu": "4"})
    )]
    #[case::init_beside_earlier_sidecar(
        json!({"containers": [container("1")], "initContainers": [sidecar("1"), container("4"), sidecar("2")]}),
        json!({"cpu": "5"})
    )]
    #[case::init_before_sidecar(
        json!({"containers": [container("1")], "initContainers": [container("4"), sidecar("2")]}),
        json!({"cpu": "4"})
    )]
    #[case::whole_pod(
        json!({"resources": {"requests": {"cpu": "3"}}, "containers": [container("1")]}),
        json!({"cpu": "3"})
    )]
    #[case::whole_pod_limit_without_any_request(
        json!({"resources": {"limits": {"cpu": "3", "memory": "1Gi"}}, "containers": [container("1")]}),
        json!({"cpu": "1", "memory": "1073741824"})
    )]
    #[case::whole_pod_leaves_other_resources(
        json!({"resources": {"requests": {"cpu": "1"}}, "containers": [{"name": "c", "resources": {"limits": {"a.b/gpu": "2"}}}]}),
        json!({"cpu": "1", "a.b/gpu": "2"})
    )]
    #[case::overhead(json!({"overhead": {"cpu": "250m"}, "containers": [container("1")]}), json!({"cpu": "1250m"}))]
    fn table(#[case] spec: Value, #[case] expected: Value) {
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let expected: BTreeMap<String, Written> = serde_json::from_value(expected).unwrap();
        similar_asserts::assert_eq!(effective(&spec).unwrap(), read(Some(&expected)).unwrap());
    }

    #[test]
    fn nonsense_is_an_error() {
        let spec: PodSpec = serde_json::from_value(json!({"containers": [container("lots")]})).unwrap();
        assert_eq!(effective(&spec), Err(ParseQuantityError("lots".to_owned())));
    }
}
