//! What has to be done for a claim, from what is known about it.

use std::time::Duration;

use buffer_api::{
    NodeClaim,
    conditions::claim::{LAUNCHED, REGISTERED},
    labels::{INSTANCE_FINALIZER, TERMINATION_FINALIZER},
};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::Node,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use serde_json::{Value, json};

use crate::{launch::Instance, rules::Labels};

/// Where the claim stands, as this process saw it.
#[derive(Clone, Copy, Debug)]
pub struct Marks {
    /// When the claim was first seen.
    pub seen: Timestamp,
    /// When its instance was first seen running.
    pub running: Option<Timestamp>,
    /// When its Node was first seen starting.
    pub registered: Option<Timestamp>,
    /// When the order to terminate was first seen.
    pub ordered: Option<Timestamp>,
}

/// How long the steps of this claim take.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delays {
    /// From the claim to the running instance.
    pub launch: Duration,
    /// From the running instance to the Node; `None` is never.
    pub register: Option<Duration>,
    /// From the order to terminate to the instance being away.
    pub terminate: Duration,
}

/// Everything that the decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The claim.
    pub claim: &'a NodeClaim,
    /// Provider id that the claim's instance has or would have.
    pub provider_id: &'a str,
    /// The instance's Node, if it is there.
    pub node: Option<&'a Node>,
    /// Whether this process has made the Node or has seen it; once it is gone it does not come again.
    pub born: bool,
    /// Whether the Node was made and has not been seen yet.
    pub unseen: bool,
    /// When what was seen.
    pub marks: Marks,
    /// How long the steps take.
    pub delays: Delays,
    /// Before this time another machine is not tried.
    pub retry: Option<Timestamp>,
    /// Now.
    pub now: Timestamp,
}

/// What has to be done for a claim.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// Nothing until something changes.
    Rest,
    /// Nothing before this time has passed.
    Wait(Duration),
    /// Buy an instance and write its identity to the claim. It runs at once if the launch takes no time.
    Launch {
        /// Whether it runs at once.
        at_once: bool,
    },
    /// The launch has taken its time: write that the instance runs.
    Confirm,
    /// What the claim and the cluster lack of a running instance.
    Settle {
        /// Labels that the claim lacks.
        label: Labels,
        /// The Node has to be created.
        birth: bool,
    },
    /// Take the instance away, and delete its Node.
    Stop,
    /// The instance and its Node are away: let the claim go.
    Release,
}

/// Decides what has to be done.
#[must_use]
pub fn decide(facts: &Facts) -> Step {
    let Facts { claim, marks, delays, .. } = facts;
    if !has_finalizer(claim, INSTANCE_FINALIZER) {
        return Step::Rest;
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return leave(facts);
    }
    let status = claim.status.as_ref();
    match status.and_then(|s| s.provider_id.as_deref()) {
        None if !has_finalizer(claim, TERMINATION_FINALIZER) => return Step::Rest,
        None if condition(claim, LAUNCHED).is_some_and(|c| c.status == "False") => return Step::Rest,
        None => return Step::Launch { at_once: delays.launch.is_zero() },
        Some(id) if id != facts.provider_id => return Step::Rest,
        Some(_) => {}
    }
    if condition(claim, LAUNCHED).is_none_or(|c| c.status != "True") {
        if let Some(retry) = facts.retry.filter(|retry| *retry > facts.now) {
            return Step::Wait(elapsed(facts.now, retry));
        }
        let created = claim.metadata.creation_timestamp.as_ref().map(|t| t.0);
        return remaining(delays.launch, created, marks.seen, facts.now).map_or(Step::Confirm, Step::Wait);
    }

    let have = claim.metadata.labels.as_ref();
    let wanted = status.map(|s| &s.instance_labels);
    let label: Labels = wanted
        .into_iter()
        .flatten()
        .filter(|(key, _)| have.is_none_or(|have| !have.contains_key(*key)))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let was_there = facts.born
        || condition(claim, REGISTERED).is_some_and(|c| c.status == "True")
        || status.is_some_and(|s| s.node_name.is_some());
    let running = condition(claim, LAUNCHED).map(|c| c.last_transition_time.0);
    let wait = match delays.register {
        Some(delay) => remaining(delay, running, marks.running.unwrap_or(facts.now), facts.now),
        None => Some(Duration::MAX),
    };
    let missing = facts.node.is_none() && !was_there;
    match (label.is_empty(), missing, wait) {
        (_, true, None) => Step::Settle { label, birth: true },
        (false, ..) => Step::Settle { label, birth: false },
        (true, true, Some(wait)) if wait < Duration::MAX => Step::Wait(wait),
        (true, ..) => Step::Rest,
    }
}

/// A claim that is being deleted.
fn leave(facts: &Facts) -> Step {
    let Facts { claim, marks, delays, node, .. } = facts;
    if has_finalizer(claim, TERMINATION_FINALIZER) {
        return Step::Rest;
    }
    let bought = claim.status.as_ref().is_some_and(|s| s.provider_id.as_deref() == Some(facts.provider_id));
    let ordered = marks.ordered.unwrap_or(facts.now);
    if bought && let Some(wait) = remaining(delays.terminate, None, ordered, facts.now) {
        return Step::Wait(wait);
    }
    match node {
        Some(node) if node.metadata.deletion_timestamp.is_some() => Step::Rest,
        Some(_) => Step::Stop,
        None if facts.unseen => Step::Stop,
        None => Step::Release,
    }
}

/// How much of `delay` is left. It is counted from when this process saw the start; and, so that a restart doesn't start
/// over, from the recorded start, which is exact to a second only.
#[must_use]
pub fn remaining(
    delay: Duration,
    recorded: Option<Timestamp>,
    seen: Timestamp,
    now: Timestamp,
) -> Option<Duration> {
    let left = |start: Timestamp| delay.saturating_sub(elapsed(start, now));
    let since_recorded = recorded.map_or(Duration::MAX, |at| left(at) + Duration::from_secs(1));
    let left = if delay.is_zero() { delay } else { left(seen).min(since_recorded) };
    (!left.is_zero()).then_some(left)
}

/// The time from `start` to `now`, zero if `start` lies ahead.
#[must_use]
pub fn elapsed(start: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(start)).unwrap_or_default()
}

/// Whether the claim has the finalizer.
#[must_use]
pub fn has_finalizer(claim: &NodeClaim, finalizer: &str) -> bool {
    claim.metadata.finalizers.iter().flatten().any(|f| f == finalizer)
}

/// The claim's condition of that type.
#[must_use]
pub fn condition<'a>(claim: &'a NodeClaim, type_: &str) -> Option<&'a Condition> {
    claim.status.as_ref()?.conditions.iter().find(|c| c.type_ == type_)
}

/// The claim's name, empty where it has none (which the API never shows).
#[must_use]
pub fn name(claim: &NodeClaim) -> &str {
    claim.metadata.name.as_deref().unwrap_or_default()
}

/// The claim's UID, empty where it has none (which the API never shows).
#[must_use]
pub fn uid(claim: &NodeClaim) -> &str {
    claim.metadata.uid.as_deref().unwrap_or_default()
}

/// Labels by which faults select an instance: those of the claim and those of the instance.
#[must_use]
pub fn fault_labels(claim: &NodeClaim) -> Labels {
    let mut labels = claim.metadata.labels.clone().unwrap_or_default();
    labels.extend(claim.status.iter().flat_map(|s| s.instance_labels.clone()));
    labels
}

/// What the claim's condition `Launched` is to say.
#[derive(Clone, Copy, Debug)]
pub struct Launched<'a> {
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// Reason.
    pub reason: &'a str,
    /// Message.
    pub message: &'a str,
}

/// The server-side apply of all that the cloud owns of the claim's status, or `None` if the claim says so already. It
/// is bound to the version of the claim that was decided upon, so that a second cloud that decides at the same time,
/// or a late request of a cloud that is gone, can't replace what was bought.
#[must_use]
pub fn status(
    claim: &NodeClaim,
    instance: Option<(&str, &Instance)>,
    launched: Launched,
    now: Timestamp,
) -> Option<Value> {
    let before = condition(claim, LAUNCHED);
    let changed = before.is_none_or(|c| c.status != launched.status);
    let same = |c: &Condition| {
        c.status == launched.status && c.reason == launched.reason && c.message == launched.message
    };
    if before.is_some_and(same) && instance.is_none() {
        return None;
    }
    let condition = Condition {
        type_: LAUNCHED.to_owned(),
        status: launched.status.to_owned(),
        reason: launched.reason.to_owned(),
        message: launched.message.to_owned(),
        last_transition_time: match before {
            Some(c) if !changed => c.last_transition_time.clone(),
            _ => Time(now),
        },
        observed_generation: claim.metadata.generation,
    };
    let mut status = json!({"conditions": [condition]});
    if let Some((provider_id, instance)) = instance {
        status["providerID"] = json!(provider_id);
        status["instanceLabels"] = json!(instance.labels);
        status["capacity"] = json!(instance.capacity);
        status["allocatable"] = json!(instance.allocatable);
    }
    Some(json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": name(claim), "resourceVersion": claim.metadata.resource_version},
        "status": status,
    }))
}

/// The instance that the claim's status tells of.
#[must_use]
pub fn instance(claim: &NodeClaim) -> Option<Instance> {
    let status = claim.status.as_ref()?;
    status.provider_id.as_ref()?;
    Some(Instance {
        labels: status.instance_labels.clone(),
        capacity: status.capacity.clone(),
        allocatable: status.allocatable.clone(),
    })
}

#[cfg(test)]
mod tests {
    use buffer_api::karpenter::NodeClaimStatus;
    use rstest::rstest;

    use super::*;

    const ID: &str = "fake://test/u-1";

    /// What a case says about a claim, and what must follow.
    #[expect(clippy::struct_excessive_bools, reason = "independent facts of one case")]
    #[derive(Clone, Copy, Debug, Default)]
    struct Case {
        foreign_finalizers: bool,
        deleting: bool,
        drained: bool,
        id: Option<&'static str>,
        launched: Option<&'static str>,
        labelled: bool,
        registered: bool,
        born: bool,
        unseen: bool,
        node: Option<bool>, // Some(deleting)
        launch: u64,
        register: Option<u64>,
        terminate: u64,
        retry: Option<i64>,
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn step(case: Case) -> Step {
        let condition = |type_: &str, status: &str| Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: "Test".to_owned(),
            message: String::new(),
            last_transition_time: Time(at(100)),
            observed_generation: None,
        };
        let mut claim = NodeClaim::new("web-1", buffer_api::NodeClaimSpec::default());
        claim.metadata.uid = Some("u-1".to_owned());
        claim.metadata.creation_timestamp = Some(Time(at(100)));
        claim.metadata.deletion_timestamp = case.deleting.then(|| Time(at(100)));
        let mut finalizers = Vec::new();
        if !case.foreign_finalizers {
            finalizers.push(INSTANCE_FINALIZER.to_owned());
        }
        if !case.drained {
            finalizers.push(TERMINATION_FINALIZER.to_owned());
        }
        claim.metadata.finalizers = Some(finalizers);
        let zone = Labels::from([("zone".to_owned(), "a".to_owned())]);
        claim.metadata.labels = case.labelled.then(|| zone.clone());
        let mut status = NodeClaimStatus {
            provider_id: case.id.map(str::to_owned),
            conditions: case.launched.map(|status| condition(LAUNCHED, status)).into_iter().collect(),
            instance_labels: zone,
            ..NodeClaimStatus::default()
        };
        if case.registered {
            status.conditions.push(condition(REGISTERED, "True"));
        }
        claim.status = Some(status);
        let node = case.node.map(|deleting| {
            let mut node = Node::default();
            node.metadata.deletion_timestamp = deleting.then(|| Time(at(100)));
            node
        });
        decide(&Facts {
            claim: &claim,
            provider_id: ID,
            node: node.as_ref(),
            born: case.born,
            unseen: case.unseen,
            marks: Marks { seen: at(101), running: Some(at(101)), registered: None, ordered: Some(at(101)) },
            delays: Delays {
                launch: Duration::from_secs(case.launch),
                register: case.register.map(Duration::from_secs),
                terminate: Duration::from_secs(case.terminate),
            },
            retry: case.retry.map(at),
            now: at(103),
        })
    }

    /// A claim whose instance runs, and whose Node may come at once.
    const RUNNING: Case = Case {
        foreign_finalizers: false,
        deleting: false,
        drained: false,
        id: Some(ID),
        launched: Some("True"),
        labelled: true,
        registered: false,
        born: false,
        unseen: false,
        node: None,
        launch: 0,
        register: Some(0),
        terminate: 0,
        retry: None,
    };
    /// A claim that is to be let go.
    const LEAVING: Case =
        Case { deleting: true, drained: true, registered: true, node: Some(false), ..RUNNING };

    fn settle(label: &[(&str, &str)], birth: bool) -> Step {
        let label = label.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
        Step::Settle { label, birth }
    }

    #[rstest]
    #[case::new(Case { id: None, launched: None, ..RUNNING }, Step::Launch { at_once: true })]
    #[case::slow_launch(Case { id: None, launched: None, launch: 9, ..RUNNING }, Step::Launch { at_once: false })]
    #[case::retried(Case { id: None, launched: Some("Unknown"), ..RUNNING }, Step::Launch { at_once: true })]
    #[case::refused(Case { id: None, launched: Some("False"), ..RUNNING }, Step::Rest)]
    #[case::not_ours(Case { foreign_finalizers: true, id: None, launched: None, ..RUNNING }, Step::Rest)]
    #[case::nobody_would_drain_it(Case { drained: true, id: None, launched: None, ..RUNNING }, Step::Rest)]
    #[case::foreign_instance(Case { id: Some("kwok://n"), ..RUNNING }, Step::Rest)]
    #[case::launching(Case { launched: Some("Unknown"), launch: 9, ..RUNNING }, Step::Wait(Duration::from_secs(7)))]
    #[case::before_another_machine(Case { launched: Some("Unknown"), retry: Some(108), ..RUNNING }, Step::Wait(Duration::from_secs(5)))]
    #[case::another_machine(Case { launched: Some("Unknown"), retry: Some(103), ..RUNNING }, Step::Confirm)]
    #[case::launched(Case { launched: Some("Unknown"), launch: 2, ..RUNNING }, Step::Confirm)]
    #[case::running(Case { labelled: false, ..RUNNING }, settle(&[("zone", "a")], true))]
    #[case::labelled(RUNNING, settle(&[], true))]
    #[case::slow_to_register(Case { register: Some(9), ..RUNNING }, Step::Wait(Duration::from_secs(7)))]
    #[case::labels_dont_wait(Case { labelled: false, register: Some(9), ..RUNNING }, settle(&[("zone", "a")], false))]
    #[case::never_registers(Case { register: None, ..RUNNING }, Step::Rest)]
    #[case::there(Case { node: Some(false), ..RUNNING }, Step::Rest)]
    #[case::born_but_not_seen(Case { born: true, ..RUNNING }, Step::Rest)]
    #[case::a_deleted_node_stays_away(Case { registered: true, ..RUNNING }, Step::Rest)]
    #[case::draining(Case { drained: false, ..LEAVING }, Step::Rest)]
    #[case::drained(LEAVING, Step::Stop)]
    #[case::slow_to_stop(Case { terminate: 9, ..LEAVING }, Step::Wait(Duration::from_secs(7)))]
    #[case::stopped_in_time(Case { terminate: 2, ..LEAVING }, Step::Stop)]
    #[case::node_leaving(Case { node: Some(true), ..LEAVING }, Step::Rest)]
    #[case::node_gone(Case { node: None, born: true, ..LEAVING }, Step::Release)]
    #[case::node_not_seen_yet(Case { node: None, unseen: true, ..LEAVING }, Step::Stop)]
    #[case::never_bought(Case { node: None, id: None, launched: None, terminate: 9, ..LEAVING }, Step::Release)]
    #[case::someone_elses(Case { foreign_finalizers: true, ..LEAVING }, Step::Rest)]
    fn steps(#[case] case: Case, #[case] want: Step) {
        assert_eq!(step(case), want);
    }

    #[test]
    fn a_restart_does_not_start_a_delay_over() {
        let delay = Duration::from_secs(10);
        let left = |recorded, seen, now| remaining(delay, Some(at(recorded)), at(seen), at(now));
        assert_eq!(left(100, 100, 104), Some(Duration::from_secs(6)));
        assert_eq!(left(100, 108, 108), Some(Duration::from_secs(3)), "one second for the rounding of 100");
        assert_eq!(left(100, 200, 200), Some(Duration::from_secs(1)));
        assert_eq!(left(100, 100, 110), None);
        assert_eq!(remaining(Duration::ZERO, Some(at(100)), at(100), at(100)), None);
    }

    #[test]
    fn status_keeps_the_time_of_the_last_change() {
        let launched = |status, reason| Launched { status, reason, message: "" };
        let mut claim = NodeClaim::new("web-1", buffer_api::NodeClaimSpec::default());
        let first = status(&claim, None, launched("Unknown", "A"), at(5)).expect("new");
        let first: Condition =
            serde_json::from_value(first["status"]["conditions"][0].clone()).expect("a condition");
        assert_eq!(first.last_transition_time, Time(at(5)));
        claim.status = Some(NodeClaimStatus { conditions: vec![first], ..Default::default() });
        assert_eq!(
            status(&claim, None, launched("Unknown", "A"), at(6)),
            None,
            "nothing new, nothing written"
        );
        let second = status(&claim, None, launched("Unknown", "B"), at(6)).expect("a new reason");
        assert_eq!(second["status"]["conditions"][0]["lastTransitionTime"], "1970-01-01T00:00:05Z");
        let third = status(&claim, None, launched("True", "B"), at(7)).expect("a new status");
        assert_eq!(third["status"]["conditions"][0]["lastTransitionTime"], "1970-01-01T00:00:07Z");
    }
}
