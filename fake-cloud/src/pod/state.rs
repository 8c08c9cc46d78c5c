//! What has to be done next for a pod: Pending → Running → Succeeded or Failed → gone.

use std::{net::Ipv4Addr, time::Duration};

use buffer_api::duration::{self, ParseDurationError};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Node, Pod};
use kube::ResourceExt;
use serde_json::Value;

use super::{
    admit::{Rejection, admit},
    requests::Held,
    status::{self, Exit},
};
use crate::claim::elapsed;

/// Pod annotation: how long the containers run before they end by themselves, as a Go duration. Without it the pods of
/// Jobs end at once, and all others never. Pods that are always restarted don't end.
pub const RUN_FOR: &str = "bufconf.dev/run-for";
/// Pod annotation: exit code of containers that end by themselves, 0 to 255; absent is 0. A code other than 0 needs
/// `restartPolicy: Never`, for restarts within a pod are not imitated.
pub const EXIT_CODE: &str = "bufconf.dev/exit-code";
/// Pod annotation: how long the containers take to stop when the pod is deleted, as a Go duration; absent is at once.
/// After the pod's grace period they are killed.
pub const STOP_AFTER: &str = "bufconf.dev/stop-after";

/// Exit code of a process that a SIGTERM ended in the middle of its work.
const TERMINATED: i32 = 143;
/// What a kubelet gives containers to stop, also when their hooks have used the grace period up.
const LEAST_GRACE: Duration = Duration::from_secs(2);
/// Exit code of a process that was killed.
const KILLED: i32 = 137;

/// What the containers of a pod do.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Program {
    /// They end by themselves after this time.
    pub run_for: Option<Duration>,
    /// With this exit code.
    pub exit_code: i32,
    /// They take so long to stop.
    pub stop_after: Duration,
}

/// Why the annotations of a pod make no sense.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProgramError {
    /// An annotation should be a duration.
    #[error("annotation {0}: {1}")]
    Duration(&'static str, ParseDurationError),
    /// An annotation should be an exit code.
    #[error("annotation {EXIT_CODE}: \"{0}\" is not an exit code from 0 to 255")]
    ExitCode(String),
    /// An exit code that would mean a restart.
    #[error("annotation {EXIT_CODE}: a code other than 0 needs restartPolicy Never")]
    Restart,
}

/// Reads what the containers of a pod do.
pub fn program(pod: &Pod) -> Result<Program, ProgramError> {
    let span = |key: &'static str| {
        let text = pod.annotations().get(key);
        text.map(|text| duration::parse(text)).transpose().map_err(|error| ProgramError::Duration(key, error))
    };
    let policy = pod.spec.as_ref().and_then(|s| s.restart_policy.as_deref()).unwrap_or("Always");
    let of_job = pod.owner_references().iter().any(|owner| owner.kind == "Job");
    let run_for = span(RUN_FOR)?.or(of_job.then_some(Duration::ZERO)).filter(|_| policy != "Always");
    let exit_code = match pod.annotations().get(EXIT_CODE) {
        Some(text) => text.parse::<u8>().map_err(|_| ProgramError::ExitCode(text.clone()))?.into(),
        None => 0,
    };
    if exit_code != 0 && policy != "Never" {
        return Err(ProgramError::Restart);
    }
    Ok(Program { run_for, exit_code, stop_after: span(STOP_AFTER)?.unwrap_or_default() })
}

/// What a pod's node has for it.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The node.
    pub node: &'a Node,
    /// What the node's other pods hold.
    pub others: &'a [&'a Held],
    /// The node's address.
    pub host_ip: Ipv4Addr,
    /// The pod's address, if it doesn't share the node's.
    pub pod_ip: Ipv4Addr,
}

/// What has to be done next for a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing until something changes.
    Rest,
    /// Nothing before this time has passed.
    Wait(Duration),
    /// The node takes the pod: patch its status, and count what it holds.
    Start(Held, Value),
    /// The node refuses the pod, if it really is as it was seen: patch its status.
    Reject(Value),
    /// Patch its status.
    Patch(Value),
    /// Its containers have ended: remove the object.
    Remove,
}

/// Decides what has to be done next for a pod. Patches are strategic merge patches of the status subresource, bound to
/// the pod's UID.
#[must_use]
pub fn decide(pod: &Pod, place: Place, now: Timestamp) -> Step {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or("Pending");
    let started = pod.status.as_ref().is_some_and(|s| s.start_time.is_some());
    let leaving = pod.metadata.deletion_timestamp.as_ref();
    if matches!(phase, "Succeeded" | "Failed") {
        // with a grace period of 0 the object is only kept by somebody's finalizers
        let kept = pod.metadata.deletion_grace_period_seconds == Some(0);
        return if leaving.is_some() && !kept { Step::Remove } else { Step::Rest };
    }
    // a pod whose annotations make no sense is refused below and runs no further
    let program = program(pod).unwrap_or_default();
    if let Some(deadline) = leaving {
        return leave(pod, program, phase == "Running", deadline.0, now);
    }
    if !started {
        return match admit(pod, place.node, place.others) {
            Ok(held) => Step::Start(held, status::starting(pod, place.host_ip, now)),
            Err(Rejection { reason, message }) => Step::Reject(status::rejected(pod, &reason, &message, now)),
        };
    }
    if phase != "Running" {
        return Step::Patch(status::running(pod, place.host_ip, place.pod_ip, now));
    }
    if let Some(run_for) = program.run_for {
        let left = status::running_since(pod)
            .map_or(Duration::ZERO, |since| run_for.saturating_sub(elapsed(since, now)));
        if left.is_zero() {
            return Step::Patch(status::ended(pod, Exit { code: program.exit_code }, now));
        }
        return status::repaired(pod, now).map_or(Step::Wait(left), Step::Patch);
    }
    status::repaired(pod, now).map_or(Step::Rest, Step::Patch)
}

/// How long the containers sleep before they are told to stop. Other hooks run something within a container, of which there
/// is nothing here.
fn hooks(pod: &Pod) -> Duration {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let sleep = |c: &Container| c.lifecycle.as_ref()?.pre_stop.as_ref()?.sleep.as_ref().map(|s| s.seconds);
    let longest = containers.filter_map(sleep).max().and_then(|seconds| u64::try_from(seconds).ok());
    Duration::from_secs(longest.unwrap_or_default())
}

/// A pod that is being deleted, and whose containers have not ended.
fn leave(pod: &Pod, program: Program, runs: bool, deadline: Timestamp, now: Timestamp) -> Step {
    let grace = pod.metadata.deletion_grace_period_seconds.and_then(|s| u64::try_from(s).ok());
    let grace = Duration::from_secs(grace.unwrap_or_default());
    let asked = deadline.saturating_sub(grace).unwrap_or(deadline);
    // the hooks come first and are cut short by the grace period; the containers have what they leave of it
    let hooks = hooks(pod).min(grace);
    let rest = if hooks.is_zero() { grace } else { grace.saturating_sub(hooks).max(LEAST_GRACE) };
    let takes = if runs { hooks + program.stop_after.min(rest) } else { Duration::ZERO };
    let left = takes.saturating_sub(elapsed(asked, now));
    if !left.is_zero() {
        return Step::Wait(left);
    }
    let code = if !runs || program.stop_after > rest {
        KILLED
    } else if program.run_for.is_some() {
        TERMINATED
    } else {
        0
    };
    Step::Patch(status::ended(pod, Exit { code }, now))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::needless_pass_by_value, reason = "literals are handed in")]

    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const HOST: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
    const POD: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 1);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn node() -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "n"},
            "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"}},
        }))
        .expect("a node")
    }

    /// A pod of one container with these changes to metadata and spec, that nobody has touched yet.
    fn pod(metadata: Value, spec: Value) -> Pod {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "uid": "u", "generation": 1},
            "spec": {"containers": [{"name": "c", "image": "web:1"}]},
            "status": {"phase": "Pending", "qosClass": "Burstable", "conditions": [
                {"type": "PodScheduled", "status": "True"},
                {"type": "example.com/foreign", "status": "True"},
            ]},
        });
        for (part, changes) in [("metadata", metadata), ("spec", spec)] {
            if let (Some(all), Value::Object(changes)) = (pod[part].as_object_mut(), changes) {
                all.extend(changes);
            }
        }
        serde_json::from_value(pod).expect("a pod")
    }

    fn next(pod: &Pod, second: i64) -> Step {
        let node = node();
        decide(pod, Place { node: &node, others: &[], host_ip: HOST, pod_ip: POD }, at(second))
    }

    /// A strategic merge of a patch of the status: maps are merged, conditions are merged by type, other lists replaced.
    fn apply(pod: &Pod, patch: &Value) -> Pod {
        fn merge(into: &mut Value, patch: &Value) {
            match (into, patch) {
                (Value::Object(into), Value::Object(patch)) => {
                    for (key, value) in patch {
                        if value.is_null() {
                            into.remove(key);
                        } else if key == "conditions"
                            && let (Some(Value::Array(have)), Value::Array(patches)) =
                                (into.get_mut(key), value)
                        {
                            for patch in patches {
                                match have.iter_mut().find(|c| c["type"] == patch["type"]) {
                                    Some(condition) => merge(condition, patch),
                                    None => have.push(patch.clone()),
                                }
                            }
                        } else {
                            merge(into.entry(key).or_insert(Value::Null), value);
                        }
                    }
                }
                (into, patch) => *into = patch.clone(),
            }
        }
        assert_eq!(patch["metadata"], json!({"uid": "u"}), "bound to the pod's UID, and nothing else");
        let mut all = serde_json::to_value(pod).expect("serializable");
        merge(&mut all["status"], &patch["status"]);
        serde_json::from_value(all).expect("a pod")
    }

    /// Follows the patches from `second` on until nothing is left to patch; the phases on the way, and the last step.
    fn follow(mut pod: Pod, second: i64) -> (Vec<String>, Pod, Step) {
        let mut phases = Vec::new();
        for _ in 0..10 {
            let step = next(&pod, second);
            match &step {
                Step::Start(_, patch) | Step::Reject(patch) | Step::Patch(patch) => pod = apply(&pod, patch),
                _ => return (phases, pod, step),
            }
            phases.push(pod.status.clone().and_then(|s| s.phase).expect("a phase"));
        }
        panic!("it never comes to rest: {phases:?}");
    }

    fn condition<'a>(pod: &'a Pod, type_: &str) -> (&'a str, i64) {
        let conditions = pod.status.as_ref().expect("a status").conditions.as_ref().expect("conditions");
        let found = conditions.iter().find(|c| c.type_ == type_).expect("the condition");
        (&found.status, found.last_transition_time.as_ref().map_or(0, |t| t.0.as_second()))
    }

    #[test]
    fn a_server_runs_until_it_is_deleted() {
        let (phases, mut pod, last) = follow(pod(json!({}), json!({})), 10);
        assert_eq!(phases, ["Pending", "Running"]);
        assert_eq!(last, Step::Rest);
        let status = pod.status.clone().expect("a status");
        assert_eq!(status.pod_ip.as_deref(), Some("100.64.0.1"));
        assert_eq!(status.host_ip.as_deref(), Some("198.18.0.1"));
        assert_eq!(status.qos_class.as_deref(), Some("Burstable"));
        assert_eq!(condition(&pod, "Ready"), ("True", 10));
        assert_eq!(condition(&pod, "example.com/foreign").0, "True");
        let container = &status.container_statuses.expect("containers")[0];
        assert!(container.ready && container.started == Some(true) && container.restart_count == 0);

        pod.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(50)));
        pod.metadata.deletion_grace_period_seconds = Some(30);
        let (phases, mut pod, last) = follow(pod, 20);
        assert_eq!((phases, last), (vec!["Succeeded".to_owned()], Step::Remove));
        assert_eq!(condition(&pod, "Ready"), ("False", 20));
        pod.metadata.deletion_grace_period_seconds = Some(0);
        assert_eq!(next(&pod, 21), Step::Rest, "only somebody's finalizer keeps it");
    }

    #[test]
    fn containers_are_seen_waiting_first() {
        let Step::Start(_, patch) = next(&pod(json!({}), json!({})), 10) else { panic!("not started") };
        let state = &patch["status"]["containerStatuses"][0]["state"];
        assert_eq!(state["waiting"]["reason"], "ContainerCreating");
        assert_eq!(patch["status"]["startTime"], "1970-01-01T00:00:10Z");
        assert_eq!(patch["status"].get("qosClass"), None);
    }

    #[rstest]
    #[case::fast_enough("2s", 5, &[(20, None), (21, None), (22, Some(0))])]
    #[case::killed_in_time("9s", 2, &[(21, None), (22, Some(137))])]
    #[case::no_grace("9s", 0, &[(20, Some(137))])]
    fn stopping(#[case] takes: &str, #[case] grace: i64, #[case] seen: &[(i64, Option<i32>)]) {
        let annotations = json!({"annotations": {STOP_AFTER: takes}});
        let (_, mut pod, _) = follow(pod(annotations, json!({})), 10);
        pod.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(20 + grace)));
        pod.metadata.deletion_grace_period_seconds = Some(grace);
        for &(second, want) in seen {
            let got = match next(&pod, second) {
                Step::Wait(_) => None,
                Step::Patch(patch) => {
                    patch["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
                        .as_i64()
                        .and_then(|code| i32::try_from(code).ok())
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(got, want, "at {second}");
        }
    }

    #[rstest]
    #[case::within_the_grace(3, 9, 23)]
    #[case::cut_short(60, 5, 25)]
    fn a_sleeping_hook_comes_first(#[case] sleep: i64, #[case] grace: i64, #[case] ends: i64) {
        let hook = json!({"preStop": {"sleep": {"seconds": sleep}}});
        let spec = json!({"containers": [{"name": "c", "image": "web:1", "lifecycle": hook}]});
        let (_, mut pod, _) = follow(pod(json!({}), spec), 10);
        pod.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(20 + grace)));
        pod.metadata.deletion_grace_period_seconds = Some(grace);
        assert_eq!(next(&pod, ends - 1), Step::Wait(Duration::from_secs(1)));
        let (phases, _, last) = follow(pod, ends);
        assert_eq!((phases, last), (vec!["Succeeded".to_owned()], Step::Remove));
    }

    fn job_pod(policy: &str, annotations: Value) -> Pod {
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j"});
        let metadata = json!({"ownerReferences": [owner], "annotations": annotations});
        pod(metadata, json!({"restartPolicy": policy}))
    }

    #[rstest]
    #[case::at_once(job_pod("Never", json!({})), &["Pending", "Running", "Succeeded"])]
    #[case::on_failure(job_pod("OnFailure", json!({})), &["Pending", "Running", "Succeeded"])]
    #[case::failing(job_pod("Never", json!({EXIT_CODE: "3"})), &["Pending", "Running", "Failed"])]
    #[case::later(job_pod("Never", json!({RUN_FOR: "5s"})), &["Pending", "Running"])]
    #[case::no_job(pod(json!({}), json!({"restartPolicy": "Never"})), &["Pending", "Running"])]
    #[case::always(pod(json!({"annotations": {RUN_FOR: "0s"}}), json!({})), &["Pending", "Running"])]
    #[case::refused(job_pod("OnFailure", json!({EXIT_CODE: "3"})), &["Failed"])]
    fn ending(#[case] pod: Pod, #[case] want: &[&str]) {
        let (phases, ..) = follow(pod, 10);
        assert_eq!(phases, want);
    }

    #[test]
    fn a_run_takes_its_time() {
        let (_, pod, last) = follow(job_pod("Never", json!({RUN_FOR: "5s"})), 10);
        assert_eq!(last, Step::Wait(Duration::from_secs(5)));
        assert_eq!(follow(pod, 15).0, ["Succeeded"]);
    }

    #[test]
    fn a_job_that_is_deleted_while_it_works_has_failed() {
        let (_, mut pod, _) = follow(job_pod("Never", json!({RUN_FOR: "60s"})), 10);
        pod.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(50)));
        pod.metadata.deletion_grace_period_seconds = Some(30);
        assert_eq!(follow(pod, 20).0, ["Failed"]);
    }

    #[test]
    fn readiness_gates_are_respected() {
        let gated = pod(json!({}), json!({"readinessGates": [{"conditionType": "example.com/lb"}]}));
        let (_, mut pod, _) = follow(gated, 10);
        assert_eq!(condition(&pod, "Ready").0, "False");
        assert_eq!(condition(&pod, "ContainersReady").0, "True");
        let gate = json!({"type": "example.com/lb", "status": "True"});
        let conditions = pod.status.as_mut().and_then(|s| s.conditions.as_mut()).expect("conditions");
        conditions.push(serde_json::from_value(gate).expect("a condition"));
        let (_, pod, _) = follow(pod, 30);
        assert_eq!(condition(&pod, "Ready"), ("True", 30));
        assert_eq!(condition(&pod, "ContainersReady"), ("True", 10), "unchanged, so is its time");
        let reason =
            pod.status.iter().flat_map(|s| s.conditions.iter().flatten()).find(|c| c.type_ == "Ready");
        assert_eq!(reason.and_then(|c| c.reason.as_deref()), None, "the old reason is gone");
    }

    #[test]
    fn readiness_comes_back_after_a_silence() {
        let (_, mut pod, _) = follow(pod(json!({}), json!({})), 10);
        for condition in pod.status.iter_mut().flat_map(|s| &mut s.conditions).flatten() {
            if condition.type_ == "Ready" {
                // as the node controller writes it: without a reason
                condition.status = "False".to_owned();
            }
        }
        let before = pod.status.clone().expect("a status");
        let (_, pod, last) = follow(pod, 90);
        assert_eq!((condition(&pod, "Ready"), last), (("True", 10), Step::Rest), "the kubelet remembers");
        let after = pod.status.expect("a status");
        assert_eq!((before.pod_ip, before.start_time), (after.pod_ip, after.start_time));
        assert_eq!(before.container_statuses, after.container_statuses);
    }

    #[test]
    fn init_containers_end_and_sidecars_run() {
        let spec = json!({"initContainers": [
            {"name": "prepare", "image": "i"},
            {"name": "proxy", "image": "p", "restartPolicy": "Always"},
        ]});
        let start = pod(json!({}), spec);
        let Step::Start(_, patch) = next(&start, 10) else { panic!("not started") };
        assert_eq!(condition(&apply(&start, &patch), "Initialized").0, "False");
        let (_, pod, _) = follow(start, 10);
        assert_eq!(condition(&pod, "Initialized").0, "True");
        let init = pod.status.and_then(|s| s.init_container_statuses).expect("init containers");
        let state = |i: usize| init[i].state.clone().expect("a state");
        assert_eq!(state(0).terminated.map(|t| t.exit_code), Some(0));
        assert!(state(1).running.is_some() && init[1].ready);
    }

    #[test]
    fn host_network_shares_the_nodes_address() {
        let (_, pod, _) = follow(pod(json!({}), json!({"hostNetwork": true})), 10);
        assert_eq!(pod.status.and_then(|s| s.pod_ip).as_deref(), Some("198.18.0.1"));
    }

    #[test]
    fn rejected_for_good() {
        let spec = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]});
        let (phases, pod, last) = follow(pod(json!({}), spec), 10);
        assert_eq!((phases, last), (vec!["Failed".to_owned()], Step::Rest));
        assert_eq!(pod.status.and_then(|s| s.reason).as_deref(), Some("OutOfcpu"));
    }

    #[test]
    fn never_started_and_deleted() {
        let mut pod = pod(json!({}), json!({}));
        pod.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(50)));
        pod.metadata.deletion_grace_period_seconds = Some(30);
        let (phases, _, last) = follow(pod, 20);
        assert_eq!((phases, last), (vec!["Failed".to_owned()], Step::Remove));
    }
}
