//! What a kubelet writes into a pod's status.
//!
//! Every function gives a strategic merge patch with the pod's UID as a precondition. It holds only what a kubelet owns:
//! conditions of others, the QoS class and what else is there stay as they are.

use std::net::Ipv4Addr;

use buffer_api::requests::is_sidecar;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
        ContainerStatus, Pod, PodCondition, PodSpec, PodStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::{Value, json};

/// How the containers of a pod ended.
#[derive(Clone, Copy, Debug)]
pub struct Exit {
    /// Exit code.
    pub code: i32,
}

/// The node refuses the pod.
#[must_use]
pub fn rejected(pod: &Pod, reason: &str, message: &str, now: Timestamp) -> Value {
    patch(pod, json!({"phase": "Failed", "reason": reason, "message": message, "startTime": Time(now)}))
}

/// The node has taken the pod, its containers are being created.
#[must_use]
pub fn starting(pod: &Pod, host_ip: Ipv4Addr, now: Timestamp) -> Value {
    let spec = spec(pod);
    let has_init = spec.init_containers.as_ref().is_some_and(|c| !c.is_empty());
    let waiting = |container: &Container| {
        let reason = if has_init { "PodInitializing" } else { "ContainerCreating" };
        let state = ContainerStateWaiting { reason: Some(reason.to_owned()), message: None };
        let state = ContainerState { waiting: Some(state), ..ContainerState::default() };
        ContainerStatus { started: Some(false), ..container_status(pod, container, state, false) }
    };
    let not_ready = Some("ContainersNotReady");
    let initialized = if has_init { (false, Some("ContainersNotInitialized")) } else { (true, None) };
    let wanted = [
        Wanted::new("PodScheduled", true, None),
        Wanted::new("PodReadyToStartContainers", false, None),
        Wanted::new("Initialized", initialized.0, initialized.1),
        Wanted::new("ContainersReady", false, not_ready),
        Wanted::new("Ready", false, not_ready),
    ];
    let mut status = json!({
        "phase": "Pending",
        "startTime": Time(now),
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "containerStatuses": spec.containers.iter().map(waiting).collect::<Vec<_>>(),
        "conditions": changes(pod, &wanted, now),
    });
    if has_init {
        let init = spec.init_containers.iter().flatten().map(waiting).collect::<Vec<_>>();
        status["initContainerStatuses"] = json!(init);
    }
    patch(pod, status)
}

/// All containers run.
#[must_use]
pub fn running(pod: &Pod, host_ip: Ipv4Addr, pod_ip: Ipv4Addr, now: Timestamp) -> Value {
    let spec = spec(pod);
    let ip = if spec.host_network == Some(true) { host_ip } else { pod_ip };
    let run = |container: &Container| {
        let state = ContainerStateRunning { started_at: Some(Time(now)) };
        let state = ContainerState { running: Some(state), ..ContainerState::default() };
        container_status(pod, container, state, true)
    };
    let init = |container: &Container| {
        if is_sidecar(container) { run(container) } else { ended_container(pod, container, 0, now) }
    };
    let mut status = json!({
        "phase": "Running",
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "containerStatuses": spec.containers.iter().map(run).collect::<Vec<_>>(),
        "conditions": changes(pod, &while_running(pod), now),
    });
    if let Some(containers) = spec.init_containers.as_ref().filter(|c| !c.is_empty()) {
        status["initContainerStatuses"] = json!(containers.iter().map(init).collect::<Vec<_>>());
    }
    patch(pod, status)
}

/// What is not as it should be with a running pod, if anything: readiness gates that changed, conditions that somebody
/// else wrote over while the node was silent, a spec that changed.
#[must_use]
pub fn repaired(pod: &Pod, now: Timestamp) -> Option<Value> {
    let changes = changes(pod, &while_running(pod), now);
    // a server that doesn't know the field never stores it, so that it can't be waited for
    let observed = pod.status.as_ref().and_then(|s| s.observed_generation);
    let behind = observed.is_some() && observed != pod.metadata.generation;
    (!changes.is_empty() || behind).then(|| patch(pod, json!({"conditions": changes})))
}

/// All containers have ended.
#[must_use]
pub fn ended(pod: &Pod, exit: Exit, now: Timestamp) -> Value {
    let spec = spec(pod);
    let (phase, reason) =
        if exit.code == 0 { ("Succeeded", "PodCompleted") } else { ("Failed", "PodFailed") };
    let end = |container: &Container| ended_container(pod, container, exit.code, now);
    let init = |container: &Container| {
        let before = before(pod, &container.name);
        let ended = before.filter(|s| s.state.as_ref().is_some_and(|state| state.terminated.is_some()));
        // a sidecar is stopped after the others and ends well
        let code = if is_sidecar(container) { 0 } else { exit.code };
        ended.cloned().unwrap_or_else(|| ended_container(pod, container, code, now))
    };
    let wanted = [
        Wanted::new("PodReadyToStartContainers", false, None),
        Wanted::new("Initialized", true, (exit.code == 0).then_some(reason)),
        Wanted::new("ContainersReady", false, Some(reason)),
        Wanted::new("Ready", false, Some(reason)),
    ];
    let mut status = json!({
        "phase": phase,
        "containerStatuses": spec.containers.iter().map(end).collect::<Vec<_>>(),
        "conditions": changes(pod, &wanted, now),
    });
    if let Some(containers) = spec.init_containers.as_ref().filter(|c| !c.is_empty()) {
        status["initContainerStatuses"] = json!(containers.iter().map(init).collect::<Vec<_>>());
    }
    patch(pod, status)
}

/// When the first container started to run.
#[must_use]
pub fn running_since(pod: &Pod) -> Option<Timestamp> {
    let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
    Some(containers.first()?.state.as_ref()?.running.as_ref()?.started_at.as_ref()?.0)
}

fn patch(pod: &Pod, mut status: Value) -> Value {
    if let Some(generation) = pod.metadata.generation {
        status["observedGeneration"] = json!(generation);
    }
    json!({"metadata": {"uid": pod.metadata.uid}, "status": status})
}

fn spec(pod: &Pod) -> PodSpec {
    pod.spec.clone().unwrap_or_default()
}

/// What a condition should say.
struct Wanted {
    type_: &'static str,
    status: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl Wanted {
    fn new(type_: &'static str, status: bool, reason: Option<&'static str>) -> Self {
        Self { type_, status, reason, message: None }
    }
}

fn while_running(pod: &Pod) -> [Wanted; 5] {
    let gates = pod.spec.iter().flat_map(|s| s.readiness_gates.iter().flatten());
    let is_true = |type_: &str| conditions(pod).iter().any(|c| c.type_ == type_ && c.status == "True");
    let closed = gates.map(|gate| gate.condition_type.as_str()).find(|gate| !is_true(gate));
    [
        Wanted::new("PodScheduled", true, None),
        Wanted::new("PodReadyToStartContainers", true, None),
        Wanted::new("Initialized", true, None),
        Wanted::new("ContainersReady", true, None),
        Wanted {
            type_: "Ready",
            status: closed.is_none(),
            reason: closed.map(|_| "ReadinessGatesNotReady"),
            message: closed.map(|gate| format!("the readiness gate \"{gate}\" is not True")),
        },
    ]
}

/// Patches of the conditions that don't say what they should.
fn changes(pod: &Pod, wanted: &[Wanted], now: Timestamp) -> Vec<Value> {
    wanted.iter().filter_map(|wanted| change(pod, wanted, now)).collect()
}

fn change(pod: &Pod, wanted: &Wanted, now: Timestamp) -> Option<Value> {
    let status = if wanted.status { "True" } else { "False" };
    let before = conditions(pod).iter().find(|c| c.type_ == wanted.type_);
    if before.is_some_and(|c| {
        c.status == status && c.reason.as_deref() == wanted.reason && c.message == wanted.message
    }) {
        return None;
    }
    let kept = before.filter(|c| c.status == status).and_then(|c| c.last_transition_time.clone());
    let since = kept.or_else(|| restored(pod, wanted, before?));
    let mut condition = json!({
        "type": wanted.type_,
        "status": status,
        "lastTransitionTime": since.unwrap_or(Time(now)),
    });
    if let Some(generation) = pod.metadata.generation {
        condition["observedGeneration"] = json!(generation);
    }
    // null takes an old text away; where there is none it would be noise
    let texts = [
        ("reason", wanted.reason.map(str::to_owned), before.and_then(|c| c.reason.as_ref())),
        ("message", wanted.message.clone(), before.and_then(|c| c.message.as_ref())),
    ];
    for (field, text, old) in texts {
        if text.is_some() || old.is_some() {
            condition[field] = json!(text);
        }
    }
    Some(condition)
}

/// Since when a pod has been ready, as its kubelet remembers it. While the kubelet was silent the node controller wrote that
/// the pod is not; coming back, the kubelet writes what it knew, with the old time.
fn restored(pod: &Pod, wanted: &Wanted, before: &PodCondition) -> Option<Time> {
    // a kubelet always says why, the node controller never does
    if wanted.type_ != "Ready" || !wanted.status || before.reason.is_some() {
        return None;
    }
    let gates = pod.spec.iter().flat_map(|s| s.readiness_gates.iter().flatten());
    let gates = gates.map(|gate| gate.condition_type.as_str());
    let waited_for: Vec<_> = gates.chain(["ContainersReady"]).collect();
    let times = conditions(pod).iter().filter(|c| waited_for.contains(&c.type_.as_str()));
    times.filter_map(|c| c.last_transition_time.clone()).max()
}

fn conditions(pod: &Pod) -> &[PodCondition] {
    pod.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default()
}

fn before<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let status: &PodStatus = pod.status.as_ref()?;
    let all = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    all.into_iter().find(|s| s.name == container)
}

fn container_status(pod: &Pod, container: &Container, state: ContainerState, ready: bool) -> ContainerStatus {
    let image = container.image.clone().unwrap_or_default();
    let id = format!("hollow://{}-{}", pod.metadata.uid.as_deref().unwrap_or_default(), container.name);
    ContainerStatus {
        name: container.name.clone(),
        image_id: if ready { image.clone() } else { String::new() },
        image,
        container_id: ready.then_some(id),
        ready,
        started: Some(ready),
        restart_count: before(pod, &container.name).map_or(0, |s| s.restart_count),
        state: Some(state),
        ..ContainerStatus::default()
    }
}

/// A container that has ended. One that never ran has no start.
fn ended_container(pod: &Pod, container: &Container, code: i32, now: Timestamp) -> ContainerStatus {
    let ran = before(pod, &container.name)
        .and_then(|s| s.state.as_ref())
        .and_then(|state| state.running.as_ref())
        .and_then(|running| running.started_at.clone());
    let reason = if code == 0 { "Completed" } else { "Error" };
    let state = ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code: code,
            reason: Some(reason.to_owned()),
            started_at: ran.or(Some(Time(now))),
            finished_at: Some(Time(now)),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    };
    let is_init = pod.spec.iter().flat_map(|s| s.init_containers.iter().flatten());
    let prepared = code == 0 && is_init.into_iter().any(|c| c.name == container.name && !is_sidecar(c));
    ContainerStatus {
        // an init container that did its work counts as ready
        ready: prepared,
        started: Some(false),
        ..container_status(pod, container, state, true)
    }
}
