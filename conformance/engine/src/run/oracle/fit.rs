//! Whether a pod may be on a node at all: taints, node selector, required node affinity, the node's own state.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm, PodSpec, Taint, Toleration},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use super::{NotJudged, state::Node};

/// Why no copy of the pod may be on the node, whatever room it has; `None` if it may.
#[must_use]
pub fn excluded(spec: &PodSpec, node: &Node) -> Option<String> {
    if node.deleting {
        return Some("being deleted".to_owned());
    }
    if !node.ready {
        return Some("not Ready".to_owned());
    }
    if node.unschedulable {
        return Some("unschedulable".to_owned());
    }
    if let Some(taint) = untolerated(spec, node) {
        let value = taint.value.as_deref().map(|value| format!("={value}")).unwrap_or_default();
        return Some(format!("taint {}{value}:{} is not tolerated", taint.key, taint.effect));
    }
    for (key, value) in spec.node_selector.iter().flatten() {
        if node.labels.get(key) != Some(value) {
            let seen = node.labels.get(key).map_or("absent", String::as_str);
            return Some(format!("node selector wants {key}={value}, is {seen}"));
        }
    }
    (!affinity_allows(spec, node)).then(|| "required node affinity does not match".to_owned())
}

/// Terms of the pod's required node affinity; `None` where it has none, and any node will do.
#[must_use]
pub fn affinity_terms(spec: &PodSpec) -> Option<&[NodeSelectorTerm]> {
    let node = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = node.required_during_scheduling_ignored_during_execution.as_ref()?;
    Some(&required.node_selector_terms)
}

fn affinity_allows(spec: &PodSpec, node: &Node) -> bool {
    affinity_terms(spec).is_none_or(|terms| terms.iter().any(|term| term_matches(term, node)))
}

fn term_matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    // an empty term matches nothing
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let name = BTreeMap::from([("metadata.name".to_owned(), node.name.clone())]);
    expressions.iter().all(|one| requirement_matches(one, &node.labels))
        && fields.iter().all(|one| requirement_matches(one, &name))
}

fn requirement_matches(requirement: &NodeSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let label = labels.get(&requirement.key);
    let values = requirement.values.as_deref().unwrap_or_default();
    let bound = || match values {
        [value] => value.parse::<i64>().ok(),
        _ => None,
    };
    let number = || label.and_then(|label| label.parse::<i64>().ok());
    match requirement.operator.as_str() {
        "In" => label.is_some_and(|label| values.contains(label)),
        "NotIn" => label.is_none_or(|label| !values.contains(label)),
        "Exists" => label.is_some(),
        "DoesNotExist" => label.is_none(),
        "Gt" => number().zip(bound()).is_some_and(|(number, bound)| number > bound),
        "Lt" => number().zip(bound()).is_some_and(|(number, bound)| number < bound),
        _ => false,
    }
}

fn untolerated<'a>(spec: &PodSpec, node: &'a Node) -> Option<&'a Taint> {
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    node.taints
        .iter()
        .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"))
        .find(|taint| !tolerations.iter().any(|one| tolerates(one, taint)))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let effect = text(&toleration.effect);
    let key = text(&toleration.key);
    if !(effect.is_empty() || effect == taint.effect) || !(key.is_empty() || key == taint.key) {
        return false;
    }
    match text(&toleration.operator).as_str() {
        "" | "Equal" => !key.is_empty() && text(&toleration.value) == text(&taint.value),
        "Exists" => true,
        _ => false,
    }
}

/// The pod's required anti-affinity, after a check that it has no rule that the oracle does not model.
pub fn anti_affinity(spec: &PodSpec) -> Result<&[PodAffinityTerm], NotJudged> {
    let affinity = spec.affinity.as_ref();
    let together = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
    if together.is_some_and(|one| !empty(one.required_during_scheduling_ignored_during_execution.as_ref())) {
        return Err(NotJudged::Rule("required pod affinity"));
    }
    let mut spread = spec.topology_spread_constraints.iter().flatten();
    if spread.any(|one| one.when_unsatisfiable == "DoNotSchedule") {
        return Err(NotJudged::Rule("topology spread constraints"));
    }
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    if ports.any(|port| port.host_port.is_some()) {
        return Err(NotJudged::Rule("host ports"));
    }
    if !empty(spec.resource_claims.as_ref()) {
        return Err(NotJudged::Rule("resource claims"));
    }
    let apart = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let terms = apart
        .and_then(|apart| apart.required_during_scheduling_ignored_during_execution.as_deref())
        .unwrap_or_default();
    let elsewhere = |term: &PodAffinityTerm| {
        term.namespace_selector.is_some()
            || !empty(term.match_label_keys.as_ref())
            || !empty(term.mismatch_label_keys.as_ref())
    };
    if terms.iter().any(elsewhere) {
        return Err(NotJudged::Rule("anti-affinity with a namespace selector or label keys"));
    }
    Ok(terms)
}

fn empty<T>(list: Option<&Vec<T>>) -> bool {
    list.is_none_or(Vec::is_empty)
}

/// Whether an anti-affinity term of a pod in `home` is about a pod in `namespace` with these labels.
#[must_use]
pub fn term_is_about(
    term: &PodAffinityTerm,
    home: &str,
    namespace: &str,
    labels: &BTreeMap<String, String>,
) -> bool {
    let named = match &term.namespaces {
        Some(names) if !names.is_empty() => names.iter().any(|name| name == namespace),
        _ => home == namespace,
    };
    named && term.label_selector.as_ref().is_some_and(|selector| selects(selector, labels))
}

fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    equal
        && selector.match_expressions.iter().flatten().all(|one| {
            let requirement = NodeSelectorRequirement {
                key: one.key.clone(),
                operator: one.operator.clone(),
                values: one.values.clone(),
            };
            requirement_matches(&requirement, labels)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn node() -> Node {
        let labels = [("zone", "a"), ("gen", "5"), ("kubernetes.io/hostname", "n1")];
        Node {
            name: "n1".to_owned(),
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            ready: true,
            ..Node::default()
        }
    }

    fn spec(value: &Value) -> PodSpec {
        let mut whole = json!({"containers": []});
        whole.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
        serde_json::from_value(whole).unwrap()
    }

    fn with_terms(terms: &Value) -> Value {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
    }

    #[rstest]
    #[case::ready(|_: &mut Node| {}, None)]
    #[case::not_ready(|node: &mut Node| node.ready = false, Some("not Ready"))]
    #[case::unschedulable(|node: &mut Node| node.unschedulable = true, Some("unschedulable"))]
    #[case::deleting(|node: &mut Node| node.deleting = true, Some("being deleted"))]
    fn state(#[case] change: fn(&mut Node), #[case] expected: Option<&str>) {
        let mut node = node();
        change(&mut node);
        assert_eq!(excluded(&spec(&json!({})), &node).as_deref(), expected);
    }

    #[rstest]
    #[case::none(json!([]), "NoSchedule", false)]
    #[case::soft(json!([]), "PreferNoSchedule", true)]
    #[case::equal(json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]), "NoSchedule", true)]
    #[case::other_value(json!([{"key": "k", "operator": "Equal", "value": "x"}]), "NoSchedule", false)]
    #[case::other_effect(json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]), "NoExecute", false)]
    #[case::any_effect(json!([{"key": "k", "value": "v"}]), "NoExecute", true)]
    #[case::exists(json!([{"key": "k", "operator": "Exists"}]), "NoSchedule", true)]
    #[case::everything(json!([{"operator": "Exists"}]), "NoExecute", true)]
    #[case::no_key_no_operator(json!([{"value": "v"}]), "NoSchedule", false)]
    fn taints(#[case] tolerations: Value, #[case] effect: &str, #[case] fits: bool) {
        let mut node = node();
        node.taints = serde_json::from_value(json!([{"key": "k", "value": "v", "effect": effect}])).unwrap();
        let why = excluded(&spec(&json!({"tolerations": tolerations})), &node);
        let expected = format!("taint k=v:{effect} is not tolerated");
        assert_eq!(why, (!fits).then_some(expected));
    }

    #[rstest]
    #[case("In", json!(["a", "b"]), true)]
    #[case("In", json!(["b"]), false)]
    #[case("NotIn", json!(["b"]), true)]
    #[case("NotIn", json!(["a"]), false)]
    #[case("Exists", json!([]), true)]
    #[case("DoesNotExist", json!([]), false)]
    fn operators(#[case] operator: &str, #[case] values: Value, #[case] fits: bool) {
        let terms = json!([{"matchExpressions": [{"key": "zone", "operator": operator, "values": values}]}]);
        assert_eq!(excluded(&spec(&with_terms(&terms)), &node()).is_none(), fits);
    }

    #[rstest]
    #[case::greater(json!([{"matchExpressions": [{"key": "gen", "operator": "Gt", "values": ["4"]}]}]), true)]
    #[case::not_greater(json!([{"matchExpressions": [{"key": "gen", "operator": "Gt", "values": ["5"]}]}]), false)]
    #[case::less(json!([{"matchExpressions": [{"key": "gen", "operator": "Lt", "values": ["6"]}]}]), true)]
    #[case::no_number(json!([{"matchExpressions": [{"key": "zone", "operator": "Gt", "values": ["4"]}]}]), false)]
    #[case::absent_is_not_in(json!([{"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["4"]}]}]), true)]
    #[case::by_name(json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]), true)]
    #[case::by_other_name(json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}]), false)]
    #[case::not_by_name(json!([{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}]), false)]
    #[case::all_of_a_term(json!([{
        "matchExpressions": [{"key": "zone", "operator": "Exists"}],
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}],
    }]), false)]
    #[case::any_term(json!([
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]},
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
    ]), true)]
    #[case::empty_term(json!([{}]), false)]
    #[case::no_terms(json!([]), false)]
    fn affinity(#[case] terms: Value, #[case] fits: bool) {
        assert_eq!(excluded(&spec(&with_terms(&terms)), &node()).is_none(), fits);
    }

    #[test]
    fn node_selector() {
        assert_eq!(excluded(&spec(&json!({"nodeSelector": {"zone": "a"}})), &node()), None);
        let why = excluded(&spec(&json!({"nodeSelector": {"zone": "b"}})), &node());
        assert_eq!(why.as_deref(), Some("node selector wants zone=b, is a"));
        let why = excluded(&spec(&json!({"nodeSelector": {"disk": "ssd"}})), &node());
        assert_eq!(why.as_deref(), Some("node selector wants disk=ssd, is absent"));
    }

    #[rstest]
    #[case::affinity(
        json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}}),
        "required pod affinity"
    )]
    #[case::spread(
        json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]}),
        "topology spread constraints"
    )]
    #[case::ports(json!({"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 1}]}]}), "host ports")]
    fn rules_outside_the_model(#[case] value: Value, #[case] rule: &'static str) {
        assert_eq!(anti_affinity(&spec(&value)), Err(NotJudged::Rule(rule)));
    }

    #[test]
    fn soft_spread_does_not_matter() {
        let soft = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway"}]});
        assert_eq!(anti_affinity(&spec(&soft)).map(<[_]>::len), Ok(0));
    }
}
