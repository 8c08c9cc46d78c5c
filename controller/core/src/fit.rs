//! May a pod of this shape be on that node, and how many of them?
//!
//! Done as kube-scheduler does: resources (in [`crate::place`]), taints of effect NoSchedule and NoExecute, nodeSelector, required
//! node affinity (all operators, `matchFields` on `metadata.name`), host ports, required pod anti-affinity on the host name in both
//! directions, topology spread on the host name.
//!
//! Done more strictly than kube-scheduler, so that what fits here fits there:
//! * spread on the host name with `DoNotSchedule`: the emptiest node is taken to carry none, so a node takes at most `maxSkew`;
//! * a pod that runs already and repels ours from a wider domain (a zone): ours stay out of that whole domain;
//! * a `namespaceSelector` that is not empty is taken to select every namespace.
//!
//! Not done, so a pod with one of these is placed nowhere and is reported as such ([`Needs::unsupported`]): required pod affinity;
//! required pod anti-affinity and `DoNotSchedule` spread on labels other than the host name.
//! Preferences (preferred affinity, `ScheduleAnyway`, PreferNoSchedule) forbid nothing and are not looked at.

use buffer_api::labels;
use k8s_openapi::{
    api::core::v1::{NodeSelectorTerm, PodAffinityTerm, Taint, Toleration, TopologySpreadConstraint},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use crate::{
    requirements::{Requirements, Values, selector_values},
    snapshot::{Labels, PodShape},
};

/// A pod shape, made ready to be compared with many nodes.
#[derive(Clone, Debug)]
pub struct Needs<'a> {
    /// The shape.
    pub shape: &'a PodShape,
    /// Alternatives, one of which the node must meet.
    pub terms: Vec<Term>,
    /// A rule that is not implemented; such a pod is placed nowhere.
    pub unsupported: Option<&'static str>,
}

/// One alternative of what a node must be like.
#[derive(Clone, Debug, Default)]
pub struct Term {
    /// Requirements on its labels.
    pub labels: Requirements,
    /// Requirement on its name.
    pub name: Option<Values>,
}

impl<'a> Needs<'a> {
    /// Makes a shape ready. `repelled` are label values of domains that pods running elsewhere keep it out of, from [`Repelling`].
    #[must_use]
    pub fn new(shape: &'a PodShape, repelling: &[Repelling<'_>]) -> Self {
        let mut always = Requirements::from_labels(&shape.node_selector);
        for repelling in repelling {
            if term_selects(repelling.term, repelling.owner, shape) {
                always.and(repelling.term.topology_key.as_str(), &Values::none_of([repelling.domain]));
            }
        }
        let required = shape
            .affinity
            .as_ref()
            .and_then(|affinity| affinity.node_affinity.as_ref())
            .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
        let terms = match required {
            None => vec![Term { labels: always, name: None }],
            Some(selector) => {
                let terms = selector.node_selector_terms.iter().filter_map(Term::new);
                terms
                    .map(|mut term| {
                        term.labels.and_all(&always);
                        term
                    })
                    .collect()
            }
        };
        Self { shape, terms, unsupported: unsupported(shape) }
    }

    /// Whether a node that carries these taints may take the pod.
    pub fn tolerates<'t>(&self, taints: impl IntoIterator<Item = &'t Taint>) -> bool {
        tolerates(&self.shape.tolerations, taints)
    }

    /// How many copies rules other than resources allow on one node, beside the pods that are there (shape and number).
    #[must_use]
    pub fn room_beside(&self, there: &[(&PodShape, u64)]) -> u64 {
        let mut room = u64::MAX;
        if !self.shape.host_ports.is_empty() {
            if there.iter().any(|(other, _)| ports_collide(self.shape, other)) {
                return 0;
            }
            room = 1;
        }
        for term in own_terms(self.shape) {
            if there.iter().any(|(other, _)| term_selects(term, self.shape, other)) {
                return 0;
            }
            if term_selects(term, self.shape, self.shape) {
                room = 1;
            }
        }
        if there.iter().any(|(other, _)| {
            own_terms(other).any(|term| on_host(&term.topology_key) && term_selects(term, other, self.shape))
        }) {
            return 0;
        }
        for spread in self.shape.topology_spread.iter().filter(|spread| is_hard(spread)) {
            let matching: u64 = there
                .iter()
                .filter(|(other, _)| spread_counts(spread, self.shape, other))
                .map(|(_, n)| n)
                .sum();
            let most = u64::try_from(spread.max_skew).unwrap_or(0);
            let left = if spread_counts(spread, self.shape, self.shape) {
                most.saturating_sub(matching)
            } else if matching <= most {
                u64::MAX
            } else {
                0
            };
            room = room.min(left);
        }
        room
    }

    /// Whether [`Needs::room_beside`] looks at this shape's own rules. What others demand of it is known by [`repels`].
    #[must_use]
    pub fn has_own_rules(&self) -> bool {
        !self.shape.host_ports.is_empty()
            || own_terms(self.shape).next().is_some()
            || self.shape.topology_spread.iter().any(is_hard)
    }

    /// Whether the node must have a host name label.
    #[must_use]
    pub fn needs_host_name(&self) -> bool {
        self.shape.topology_spread.iter().any(is_hard)
    }
}

impl Term {
    /// A term without any condition selects nothing (core/v1 NodeSelectorTerm).
    fn new(term: &NodeSelectorTerm) -> Option<Self> {
        let expressions = term.match_expressions.as_deref().unwrap_or_default();
        let fields = term.match_fields.as_deref().unwrap_or_default();
        if expressions.is_empty() && fields.is_empty() {
            return None;
        }
        let mut name: Option<Values> = None;
        for field in fields {
            // metadata.name is the only field that the API server admits.
            let values = if field.key == "metadata.name" {
                selector_values(field)
            } else {
                Values::one_of::<String>([])
            };
            name = Some(name.map_or_else(|| values.clone(), |name| name.intersect(&values)));
        }
        Some(Self { labels: Requirements::from_selector(expressions), name })
    }

    /// Whether a node of that name, or one yet to be named, may be meant.
    #[must_use]
    pub fn allows_name(&self, node: Option<&str>) -> bool {
        self.name.as_ref().is_none_or(|name| match node {
            Some(node) => name.allows(Some(node)),
            None => name.allows_new(),
        })
    }
}

/// A pod's required anti-affinity on a label other than the host name, and the domain that the pod is in.
#[derive(Clone, Debug)]
pub struct Repelling<'a> {
    /// The pod that repels.
    pub owner: &'a PodShape,
    /// By this term.
    pub term: &'a PodAffinityTerm,
    /// Value of the term's topology key on the pod's node.
    pub domain: &'a str,
}

/// The domains from which a pod on a node with these labels repels others.
pub fn repelled_domains<'a>(
    shape: &'a PodShape,
    node: &'a Labels,
) -> impl Iterator<Item = Repelling<'a>> + use<'a> {
    own_terms(shape).filter(|term| !on_host(&term.topology_key)).filter_map(|term| {
        let domain = node.get(&term.topology_key)?;
        Some(Repelling { owner: shape, term, domain })
    })
}

/// Whether a shape has required anti-affinity.
#[must_use]
pub fn repels(shape: &PodShape) -> bool {
    own_terms(shape).next().is_some()
}

/// Whether all taints that keep pods off are tolerated.
pub fn tolerates<'t>(tolerations: &[Toleration], taints: impl IntoIterator<Item = &'t Taint>) -> bool {
    taints
        .into_iter()
        .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"))
        .all(|taint| tolerations.iter().any(|toleration| tolerates_one(toleration, taint)))
}

/// Source: core/v1 Toleration. An operator other than Exists and Equal tolerates nothing here.
fn tolerates_one(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    let same_value =
        || toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default();
    (effect.is_empty() || effect == taint.effect)
        && match toleration.operator.as_deref() {
            Some("Exists") => key.is_empty() || key == taint.key,
            None | Some("" | "Equal") => key == taint.key && same_value(),
            Some(_) => false,
        }
}

fn unsupported(shape: &PodShape) -> Option<&'static str> {
    let affinity = shape.affinity.as_ref();
    let attracts = affinity
        .and_then(|affinity| affinity.pod_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref())
        .is_some_and(|terms| !terms.is_empty());
    if attracts {
        return Some("required pod affinity is not supported");
    }
    if own_terms(shape).any(|term| !on_host(&term.topology_key)) {
        return Some("required pod anti-affinity is supported on the host name only");
    }
    if shape.topology_spread.iter().any(|spread| is_hard(spread) && !on_host(&spread.topology_key)) {
        return Some("topology spread with DoNotSchedule is supported on the host name only");
    }
    None
}

fn on_host(topology_key: &str) -> bool {
    topology_key == labels::HOSTNAME
}

/// A spread that forbids. Empty means the default, DoNotSchedule.
fn is_hard(spread: &TopologySpreadConstraint) -> bool {
    spread.when_unsatisfiable != "ScheduleAnyway"
}

fn own_terms(shape: &PodShape) -> impl Iterator<Item = &PodAffinityTerm> {
    shape
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.pod_anti_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref())
        .into_iter()
        .flatten()
}

fn ports_collide(one: &PodShape, two: &PodShape) -> bool {
    let any = |ip: &str| ip.is_empty() || ip == "0.0.0.0" || ip == "::";
    one.host_ports.iter().any(|(protocol, ip, port)| {
        two.host_ports.iter().any(|(other_protocol, other_ip, other_port)| {
            (protocol, port) == (other_protocol, other_port) && (ip == other_ip || any(ip) || any(other_ip))
        })
    })
}

/// Whether a term of `owner` means `other`. Source: core/v1 PodAffinityTerm; a missing selector selects no pod.
fn term_selects(term: &PodAffinityTerm, owner: &PodShape, other: &PodShape) -> bool {
    let namespaces = term.namespaces.as_deref().unwrap_or_default();
    let in_scope = match &term.namespace_selector {
        // Namespaces' labels are not known here: more are taken to be selected than may be.
        Some(_) => true,
        None if namespaces.is_empty() => owner.namespace == other.namespace,
        None => false,
    };
    (in_scope || namespaces.contains(&other.namespace))
        && term.label_selector.as_ref().is_some_and(|selector| selects(selector, &other.labels))
        && same_labels(term.match_label_keys.as_deref(), owner, other)
        && differing_labels(term.mismatch_label_keys.as_deref(), owner, other)
}

/// Whether a spread of `owner` counts `other`.
fn spread_counts(spread: &TopologySpreadConstraint, owner: &PodShape, other: &PodShape) -> bool {
    owner.namespace == other.namespace
        && spread.label_selector.as_ref().is_some_and(|selector| selects(selector, &other.labels))
        && same_labels(spread.match_label_keys.as_deref(), owner, other)
}

/// `matchLabelKeys`: keys that the owner lacks are ignored.
fn same_labels(keys: Option<&[String]>, owner: &PodShape, other: &PodShape) -> bool {
    keys.unwrap_or_default()
        .iter()
        .all(|key| owner.labels.get(key).is_none_or(|value| other.labels.get(key) == Some(value)))
}

/// `mismatchLabelKeys`: keys that the owner lacks are ignored.
fn differing_labels(keys: Option<&[String]>, owner: &PodShape, other: &PodShape) -> bool {
    keys.unwrap_or_default()
        .iter()
        .all(|key| owner.labels.get(key).is_none_or(|value| other.labels.get(key) != Some(value)))
}

/// Source: meta/v1 LabelSelector; an empty selector selects everything.
pub(crate) fn selects(selector: &LabelSelector, labels: &Labels) -> bool {
    let wanted = selector.match_labels.iter().flatten();
    wanted.into_iter().all(|(key, value)| labels.get(key) == Some(value))
        && selector.match_expressions.iter().flatten().all(|requirement| {
            let value = labels.get(&requirement.key);
            let values = requirement.values.as_deref().unwrap_or_default();
            let is_in = value.is_some_and(|value| values.contains(value));
            match requirement.operator.as_str() {
                "In" => is_in,
                "NotIn" => !is_in,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Affinity;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn shape(pairs: &[(&str, &str)]) -> PodShape {
        PodShape { namespace: "default".to_owned(), labels: labels(pairs), ..PodShape::default() }
    }

    fn affinity(value: Value) -> Affinity {
        serde_json::from_value(value).unwrap()
    }

    fn anti_affinity(term: &Value) -> Affinity {
        let terms = json!([term]);
        affinity(json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}))
    }

    fn apart(key: &str) -> Value {
        json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}})
    }

    #[rstest]
    #[case::no_taint(json!([]), json!([]), true)]
    #[case::not_tolerated(json!([]), json!([{"key": "a", "effect": "NoSchedule"}]), false)]
    #[case::no_execute_too(json!([]), json!([{"key": "a", "effect": "NoExecute"}]), false)]
    #[case::preference(json!([]), json!([{"key": "a", "effect": "PreferNoSchedule"}]), true)]
    #[case::exists(json!([{"key": "a", "operator": "Exists"}]), json!([{"key": "a", "value": "1", "effect": "NoSchedule"}]), true)]
    #[case::exists_all(json!([{"operator": "Exists"}]), json!([{"key": "a", "effect": "NoExecute"}]), true)]
    #[case::equal(json!([{"key": "a", "value": "1"}]), json!([{"key": "a", "value": "1", "effect": "NoSchedule"}]), true)]
    #[case::other_value(json!([{"key": "a", "value": "2"}]), json!([{"key": "a", "value": "1", "effect": "NoSchedule"}]), false)]
    #[case::other_effect(
        json!([{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]), json!([{"key": "a", "effect": "NoExecute"}]), false
    )]
    #[case::empty_key_needs_exists(json!([{"value": "1"}]), json!([{"key": "a", "value": "1", "effect": "NoSchedule"}]), false)]
    #[case::unknown_operator(
        json!([{"key": "a", "operator": "Gt", "value": "1"}]), json!([{"key": "a", "value": "2", "effect": "NoSchedule"}]), false
    )]
    #[case::all_must_be(
        json!([{"key": "a", "operator": "Exists"}]),
        json!([{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoSchedule"}]),
        false
    )]
    fn toleration(#[case] tolerations: Value, #[case] taints: Value, #[case] want: bool) {
        let tolerations: Vec<Toleration> = serde_json::from_value(tolerations).unwrap();
        let taints: Vec<Taint> = serde_json::from_value(taints).unwrap();
        assert_eq!(tolerates(&tolerations, &taints), want);
    }

    #[rstest]
    #[case::nothing_required(json!(null), true)]
    #[case::one_of_two_terms(json!([
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]},
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    ]), true)]
    #[case::all_of_a_term(json!([{"matchExpressions": [
        {"key": "zone", "operator": "In", "values": ["a"]}, {"key": "cpu", "operator": "Gt", "values": ["4"]}
    ]}]), false)]
    #[case::gt(json!([{"matchExpressions": [{"key": "cpu", "operator": "Gt", "values": ["3"]}]}]), true)]
    #[case::lt(json!([{"matchExpressions": [{"key": "cpu", "operator": "Lt", "values": ["4"]}]}]), false)]
    #[case::not_in_missing(json!([{"matchExpressions": [{"key": "no", "operator": "NotIn", "values": ["4"]}]}]), true)]
    #[case::exists_missing(json!([{"matchExpressions": [{"key": "no", "operator": "Exists"}]}]), false)]
    #[case::name(json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}]), true)]
    #[case::other_name(json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-2"]}]}]), false)]
    #[case::not_that_name(json!([{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-1"]}]}]), false)]
    #[case::unknown_field(json!([{"matchFields": [{"key": "spec.x", "operator": "NotIn", "values": ["node-2"]}]}]), false)]
    #[case::no_terms_select_nothing(json!([]), false)]
    #[case::an_empty_term_selects_nothing(json!([{}]), false)]
    #[case::unknown_operator(json!([{"matchExpressions": [{"key": "zone", "operator": "Is", "values": ["a"]}]}]), false)]
    fn node_affinity(#[case] terms: Value, #[case] want: bool) {
        let mut pod = shape(&[]);
        if !terms.is_null() {
            let required = json!({"nodeSelectorTerms": terms});
            let rules = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
            pod.affinity = Some(affinity(rules));
        }
        let node = labels(&[("zone", "a"), ("cpu", "4")]);
        let needs = Needs::new(&pod, &[]);
        let fits = needs.terms.iter().any(|term| {
            term.allows_name(Some("node-1"))
                && term.labels.iter().all(|(key, values)| values.allows(node.get(key).map(String::as_str)))
        });
        assert_eq!(fits, want);
    }

    #[test]
    fn the_node_selector_joins_every_term() {
        let mut pod = shape(&[]);
        pod.node_selector = labels(&[("zone", "a")]);
        let terms = json!({"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "cpu", "operator": "Exists"}]},
            {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]},
        ]});
        pod.affinity = Some(affinity(
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}),
        ));
        let needs = Needs::new(&pod, &[]);
        assert_eq!(needs.terms.len(), 2);
        assert!(needs.terms.iter().all(|term| term.labels.get("zone").is_some()));
    }

    #[test]
    fn anti_affinity_on_the_host() {
        let mut pod = shape(&[("app", "web")]);
        pod.affinity = Some(anti_affinity(&apart(labels::HOSTNAME)));
        let needs = Needs::new(&pod, &[]);
        assert_eq!(needs.room_beside(&[]), 1);
        assert_eq!(needs.room_beside(&[(&shape(&[("app", "web")]), 1)]), 0);
        assert_eq!(needs.room_beside(&[(&shape(&[("app", "db")]), 3)]), 1);
    }

    #[test]
    fn anti_affinity_holds_in_both_directions() {
        let mut guard = shape(&[("app", "guard")]);
        guard.affinity = Some(anti_affinity(&apart(labels::HOSTNAME)));
        let web = shape(&[("app", "web")]);
        assert_eq!(Needs::new(&web, &[]).room_beside(&[(&guard, 1)]), 0);
        assert_eq!(Needs::new(&guard, &[]).room_beside(&[(&web, 1)]), 0);
        // It does not repel its own kind, which its selector does not mean.
        assert_eq!(Needs::new(&guard, &[]).room_beside(&[(&guard, 1)]), u64::MAX);
    }

    #[rstest]
    #[case::own_namespace(json!({}), "default", true)]
    #[case::other_namespace(json!({}), "other", false)]
    #[case::named_namespace(json!({"namespaces": ["other"]}), "other", true)]
    #[case::named_means_only_that(json!({"namespaces": ["other"]}), "default", false)]
    #[case::all_namespaces(json!({"namespaceSelector": {}}), "other", true)]
    #[case::same_hash(json!({"matchLabelKeys": ["hash"]}), "default", false)]
    #[case::other_hash(json!({"mismatchLabelKeys": ["hash"]}), "default", true)]
    #[case::keys_that_are_missing_are_ignored(json!({"matchLabelKeys": ["none"]}), "default", true)]
    fn scope_of_a_term(#[case] extra: Value, #[case] namespace: &str, #[case] want: bool) {
        let mut term = apart(labels::HOSTNAME);
        term.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let term: PodAffinityTerm = serde_json::from_value(term).unwrap();
        let owner = shape(&[("app", "web"), ("hash", "1")]);
        let mut other = shape(&[("app", "web"), ("hash", "2")]);
        other.namespace = namespace.to_owned();
        assert_eq!(term_selects(&term, &owner, &other), want);
    }

    #[test]
    fn a_zone_that_repels_is_left_out() {
        let mut guard = shape(&[("app", "guard")]);
        guard.affinity = Some(anti_affinity(&apart("topology.kubernetes.io/zone")));
        let node = labels(&[("topology.kubernetes.io/zone", "a")]);
        let repelling: Vec<Repelling<'_>> = repelled_domains(&guard, &node).collect();
        let web = shape(&[("app", "web")]);
        let needs = Needs::new(&web, &repelling);
        let zone = needs.terms[0].labels.get("topology.kubernetes.io/zone").unwrap();
        assert!(!zone.allows(Some("a")) && zone.allows(Some("b")) && zone.allows(None));
        let db = shape(&[("app", "db")]);
        assert_eq!(Needs::new(&db, &repelling).terms[0].labels.get("topology.kubernetes.io/zone"), None);
    }

    #[rstest]
    #[case::same_port(("TCP", "", 80), 0)]
    #[case::other_port(("TCP", "", 81), 1)]
    #[case::other_protocol(("UDP", "", 80), 1)]
    #[case::any_address_collides(("TCP", "10.0.0.1", 80), 0)]
    fn host_ports(#[case] (protocol, ip, port): (&str, &str, i32), #[case] want: u64) {
        let with_port = |protocol: &str, ip: &str, port| PodShape {
            host_ports: vec![(protocol.to_owned(), ip.to_owned(), port)],
            ..shape(&[])
        };
        let (pod, other) = (with_port("TCP", "0.0.0.0", 80), with_port(protocol, ip, port));
        assert_eq!(Needs::new(&pod, &[]).room_beside(&[(&other, 1)]), want);
    }

    #[rstest]
    #[case::empty(2, 0, 2)]
    #[case::one_there(2, 1, 1)]
    #[case::full(2, 2, 0)]
    fn spread_on_the_host(#[case] max_skew: i32, #[case] there: u64, #[case] want: u64) {
        let mut pod = shape(&[("app", "web")]);
        let spread = json!([{
            "topologyKey": labels::HOSTNAME, "maxSkew": max_skew, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }]);
        pod.topology_spread = serde_json::from_value(spread).unwrap();
        let other = shape(&[("app", "web")]);
        assert_eq!(Needs::new(&pod, &[]).room_beside(&[(&other, there)]), want);
    }

    #[rstest]
    #[case::attraction(json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart("x")]}}), true)]
    #[case::wide_repulsion(json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart("zone")]}}), true)]
    #[case::host(json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart(labels::HOSTNAME)]}}), false)]
    #[case::preferences(json!({
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": apart("x")}]},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": apart("x")}]},
    }), false)]
    fn rules_that_are_not_implemented_are_named(#[case] rules: Value, #[case] want: bool) {
        let mut pod = shape(&[]);
        pod.affinity = Some(affinity(rules));
        assert_eq!(Needs::new(&pod, &[]).unsupported.is_some(), want);
    }
}
