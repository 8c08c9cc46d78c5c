//! The loop, with hand-made plans, over a service in the place of the API server: lists hold one object at most, watches
//! never say anything, and writes are answered from a script. Time is the test's own.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

use buffer_api::{CapacityBufferStatus, NodeClaimSpec, labels};
use buffer_core::{
    plan::{BufferStatus, DeleteClaim, DeleteReason, Eviction, NewClaim, NodeChange},
    snapshot::{Node, ObjectKey},
};
use http::{Method, Request, Response};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::client::Body;
use serde_json::{Value, json};
use similar_asserts::assert_eq;
use tower::{BoxError, service_fn};

use super::*;
use crate::cache::{Observed, Op};

/// Answers the script gives to a request other than lists and watches: status and body.
type Script = fn(&Method, &str, u64) -> (u16, Value);

/// The service, and what was asked of it.
#[derive(Clone)]
struct Server {
    lists: Arc<HashMap<&'static str, Value>>,
    script: Script,
    requests: Arc<Mutex<Vec<String>>>,
    version: Arc<AtomicU64>,
}

impl Server {
    fn new(lists: &[(&'static str, Value)], script: Script) -> Self {
        Self {
            lists: Arc::new(lists.iter().cloned().collect()),
            script,
            requests: Arc::default(),
            version: Arc::new(AtomicU64::new(100)),
        }
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { server.answer(request).await }
        });
        Client::new(service, "default")
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        if query.contains("watch=true") {
            return std::future::pending().await;
        }
        let plural = path.rsplit('/').next().unwrap_or_default();
        let (code, body) = if query.contains("limit=") {
            match self.lists.get(plural) {
                Some(Value::Number(code)) => (u16::try_from(code.as_u64().unwrap()).unwrap(), Value::Null),
                items => (200, list(&items.cloned().into_iter().collect::<Vec<_>>())),
            }
        } else {
            self.requests.lock().unwrap().push(format!("{} {plural}", request.method()));
            let version = self.version.fetch_add(1, Ordering::Relaxed);
            (self.script)(request.method(), plural, version)
        };
        let body = if code >= 400 {
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no", "reason": "No"})
        } else {
            body
        };
        Ok(Response::builder().status(code).body(Body::from(body.to_string().into_bytes()))?)
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn list(items: &[Value]) -> Value {
    json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items})
}

fn controller<P>(server: &Server, planner: P) -> Controller<P>
where
    P: Fn(&Snapshot, Settings, Timestamp) -> Plan + Clone + Send + 'static,
{
    let metrics = Metrics::new();
    Controller::new(server.client(), Settings::default(), metrics.clone(), Admin::new(metrics), planner)
}

/// Runs the controller for a time and ends it.
async fn run_for<P>(server: &Server, span: Duration, planner: P) -> Result<(), Error>
where
    P: Fn(&Snapshot, Settings, Timestamp) -> Plan + Clone + Send + 'static,
{
    run(controller(server, planner), span).await
}

/// The same with the feature gate on.
async fn run_with_buffers<P>(server: &Server, span: Duration, planner: P) -> Result<(), Error>
where
    P: Fn(&Snapshot, Settings, Timestamp) -> Plan + Clone + Send + 'static,
{
    let mut controller = controller(server, planner);
    controller.settings.capacity_buffer = true;
    run(controller, span).await
}

async fn run<P>(controller: Controller<P>, span: Duration) -> Result<(), Error>
where
    P: Fn(&Snapshot, Settings, Timestamp) -> Plan + Clone + Send + 'static,
{
    let shutdown = CancellationToken::new();
    let end = shutdown.clone();
    tokio::spawn(async move {
        tokio::time::sleep(span).await;
        end.cancel();
    });
    controller.run(shutdown).await.map(|left| assert_eq!(left, 0, "nothing is left on its way"))
}

fn nothing(_: &Method, _: &str, _: u64) -> (u16, Value) {
    (500, Value::Null)
}

fn new_claim() -> NewClaim {
    NewClaim {
        name: "c".to_owned(),
        pool: "p".to_owned(),
        pool_uid: "pu".to_owned(),
        labels: [(labels::NODEPOOL.to_owned(), "p".to_owned())].into(),
        annotations: [].into(),
        spec: NodeClaimSpec::default(),
    }
}

fn claim(version: u64) -> Value {
    json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": "c", "uid": "cu", "resourceVersion": version.to_string()},
        "spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}, "status": {"nodeName": "n"}})
}

fn node(version: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n", "uid": "nu", "resourceVersion": version.to_string()}})
}

#[tokio::test(start_paused = true)]
async fn ends_at_once_while_lists_are_still_missing() {
    let server = Server::new(&[], nothing);
    let shutdown = CancellationToken::new();
    shutdown.cancel();
    controller(&server, |_: &Snapshot, _, _| Plan::default()).run(shutdown).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_missing_definition_is_named() {
    let server = Server::new(&[("nodepools", json!(404))], nothing);
    let error =
        run_for(&server, Duration::from_hours(1), |_: &Snapshot, _, _| Plan::default()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "not listed after 20 s: NodePool (the server has no nodepools.karpenter.sh/v1: is its CustomResourceDefinition \
         installed?)"
    );
}

#[tokio::test(start_paused = true)]
async fn plans_once_and_then_only_for_the_resync() {
    let server = Server::new(&[], nothing);
    let plans = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&plans);
    run_for(&server, Duration::from_secs(100), move |_: &Snapshot, _, _| {
        count.fetch_add(1, Ordering::Relaxed);
        Plan::default()
    })
    .await
    .unwrap();
    assert_eq!(plans.load(Ordering::Relaxed), 4);
    assert_eq!(server.requests(), [] as [String; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_created_once_although_the_watch_is_silent() {
    let server = Server::new(&[], |_, _, version| (201, claim(version)));
    run_for(&server, Duration::from_millis(200), |snapshot: &Snapshot, _, _| Plan {
        create: if snapshot.claims.is_empty() { vec![new_claim()] } else { Vec::new() },
        wake_up: Some(Timestamp::now()),
        ..Plan::default()
    })
    .await
    .unwrap();
    assert_eq!(server.requests(), ["POST nodeclaims"]);
}

#[tokio::test(start_paused = true)]
async fn failed_writes_are_repeated_ever_more_rarely() {
    let server = Server::new(&[], nothing);
    run_for(&server, Duration::from_mins(10), |snapshot: &Snapshot, _, _| {
        assert!(snapshot.claims.is_empty(), "the failed claim was taken back");
        Plan { create: vec![new_claim()], ..Plan::default() }
    })
    .await
    .unwrap();
    // 0.1 + 0.2 + … + 51.2 s, then every minute
    let requests = server.requests().len();
    assert!((15..=21).contains(&requests), "{requests} requests");
}

#[tokio::test(start_paused = true)]
async fn a_planner_that_is_never_content_is_slowed_down() {
    let server = Server::new(&[("nodes", node(1))], |_, _, version| (200, node(version)));
    run_for(&server, Duration::from_mins(1), |snapshot: &Snapshot, _, now| Plan {
        nodes: snapshot
            .nodes
            .iter()
            .map(|node| NodeChange {
                name: node.name.clone(),
                set_labels: [("a".to_owned(), "b".to_owned())].into(),
                ..NodeChange::default()
            })
            .collect(),
        wake_up: Some(now),
        ..Plan::default()
    })
    .await
    .unwrap();
    let requests = server.requests().len();
    assert!((FOLLOW_UPS as usize..40).contains(&requests), "{requests} requests");
}

fn delete_if_empty(snapshot: &Snapshot, _: Settings, _: Timestamp) -> Plan {
    let delete = DeleteClaim { name: "c".to_owned(), reason: DeleteReason::Empty };
    let empty =
        snapshot.pods.is_empty() && snapshot.claims.iter().any(|claim| claim.uid == "cu" && !claim.deleting);
    Plan { delete: if empty { vec![delete] } else { Vec::new() }, ..Plan::default() }
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_kept_if_a_look_at_its_node_finds_a_pod() {
    let pod = |_: &Method, _: &str, _| {
        (200, list(&[json!({"metadata": {"name": "p", "resourceVersion": "50"}, "spec": {"nodeName": "n"}})]))
    };
    let server = Server::new(&[("nodeclaims", claim(1)), ("nodes", node(1))], pod);
    run_for(&server, Duration::from_secs(1), delete_if_empty).await.unwrap();
    assert_eq!(server.requests(), ["GET pods"]);
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_deleted_if_a_look_at_its_node_finds_none() {
    let script = |method: &Method, _: &str, version| {
        let mut claim = claim(version);
        claim["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
        (200, if *method == Method::GET { list(&[]) } else { claim })
    };
    let server = Server::new(&[("nodeclaims", claim(1)), ("nodes", node(1))], script);
    run_for(&server, Duration::from_secs(1), delete_if_empty).await.unwrap();
    assert_eq!(server.requests(), ["GET pods", "DELETE c"]);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_resolved_on_the_live_object() {
    let script = |method: &Method, _: &str, version| match *method {
        Method::PATCH if version < 101 => (409, Value::Null),
        _ => (200, node(version)),
    };
    let server = Server::new(&[("nodes", node(1))], script);
    run_for(&server, Duration::from_millis(40), |snapshot: &Snapshot, _, _| Plan {
        nodes: snapshot
            .nodes
            .iter()
            .filter(|node: &&Node| node.finalizers.is_empty())
            .map(|node| NodeChange { name: node.name.clone(), add_finalizer: true, ..NodeChange::default() })
            .take(1)
            .collect(),
        ..Plan::default()
    })
    .await
    .unwrap();
    assert_eq!(server.requests()[..3], ["PATCH n", "GET n", "PATCH n"]);
}

fn fits(snapshot: &Snapshot, _: Settings, _: Timestamp) -> Plan {
    let condition = Condition {
        type_: "Provisioning".to_owned(),
        status: "True".to_owned(),
        reason: "FitsExistingCapacity".to_owned(),
        message: String::new(),
        observed_generation: None,
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
    };
    let status = CapacityBufferStatus { conditions: vec![condition], ..CapacityBufferStatus::default() };
    let stale = snapshot.buffers.iter().filter(|buffer| buffer.status != status);
    let change =
        |node: &Node| NodeChange { name: node.name.clone(), add_finalizer: true, ..NodeChange::default() };
    Plan {
        nodes: snapshot.nodes.iter().map(change).collect(),
        buffers: stale
            .map(|buffer| BufferStatus { key: buffer.key.clone(), status: status.clone() })
            .collect(),
        ..Plan::default()
    }
}

fn buffer(version: u64) -> Value {
    json!({"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "spec": {},
        "metadata": {"name": "b", "namespace": "ns", "uid": "bu", "resourceVersion": version.to_string()}})
}

#[tokio::test(start_paused = true)]
async fn a_buffer_fits_only_once_the_nodes_are_changed() {
    let lists = [("capacitybuffers", buffer(1)), ("nodes", node(1))];
    let good = Server::new(&lists, |_, what, version| {
        let mut node = node(version);
        node["metadata"]["finalizers"] = json!(["karpenter.sh/termination"]);
        (200, if what == "n" { node } else { buffer(version) })
    });
    run_with_buffers(&good, Duration::from_millis(40), fits).await.unwrap();
    assert_eq!(good.requests()[..2], ["PATCH n", "PATCH status"]);

    let bad = Server::new(&lists, |_, what, version| match what {
        "n" => (500, Value::Null),
        _ => (200, buffer(version)),
    });
    run_with_buffers(&bad, Duration::from_mins(5), fits).await.unwrap();
    assert!(bad.requests().iter().all(|request| request == "PATCH n"), "{:?}", bad.requests());
}

/// A controller whose lists are complete and whose first plan is done.
fn idle() -> Controller<fn(&Snapshot, Settings, Timestamp) -> Plan> {
    let server = Server::new(&[], nothing);
    let mut idle =
        controller(&server, (|_, _, _| Plan::default()) as fn(&Snapshot, Settings, Timestamp) -> Plan);
    idle.unlisted.insert(Kind::Node);
    idle.shown(Change::Node(Op::InitDone(Kind::Node)));
    assert_eq!(idle.burst.take().map(|burst| burst.reason), Some(Reason::Start));
    idle
}

fn node_change(version: u64, ready: bool) -> Observed<Node> {
    let value = Node { name: "n".to_owned(), ready, ..Node::default() };
    let object = ObjectRef::new(Kind::Node, ObjectKey { namespace: String::new(), name: "n".to_owned() });
    Observed { object, version, owners: Vec::new(), protected_until: None, value }
}

fn outcome(answer: Option<Observed<Node>>) -> Outcome {
    Outcome {
        objects: vec![ObjectRef::cluster(Kind::Node, "n")],
        changes: answer.map(|answer| Change::Node(Op::Answered(answer))).into_iter().collect(),
        verified: Vec::new(),
        hold: Vec::new(),
        failed: None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_wakes_nobody() {
    let mut controller = idle();
    controller.shown(Change::Node(Op::Applied(node_change(1, true))));
    assert_eq!(controller.burst.take().map(|burst| burst.reason), Some(Reason::Watch));
    controller.shown(Change::Node(Op::Applied(node_change(2, true))));
    assert!(controller.burst.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_echo_wakes_nobody_before_or_after_the_answer() {
    for echo_first in [true, false] {
        let mut controller = idle();
        controller.busy.insert(ObjectRef::cluster(Kind::Node, "n"), Vec::new());
        let echo = Change::Node(Op::Applied(node_change(7, true)));
        if echo_first {
            controller.shown(echo);
            controller.written(outcome(Some(node_change(7, true))));
        } else {
            controller.written(outcome(Some(node_change(7, true))));
            controller.shown(echo);
        }
        assert!(controller.burst.is_none(), "echo first: {echo_first}");
    }
}

#[tokio::test(start_paused = true)]
async fn somebody_elses_change_during_a_write_wakes_once_the_write_is_through() {
    for answer in [Some(node_change(7, true)), None] {
        let mut controller = idle();
        controller.busy.insert(ObjectRef::cluster(Kind::Node, "n"), Vec::new());
        controller.shown(Change::Node(Op::Applied(node_change(6, false))));
        assert!(controller.burst.is_none());
        controller.written(outcome(answer));
        assert_eq!(controller.burst.map(|burst| burst.reason), Some(Reason::Watch));
    }
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_waited_for_but_not_for_long() {
    let mut controller = idle();
    let start = Instant::now();
    controller.wake(Reason::Watch);
    assert_eq!(controller.due(), start + QUIET);
    for _ in 0..20 {
        tokio::time::advance(Duration::from_millis(4)).await;
        controller.wake(Reason::Watch);
    }
    assert_eq!(controller.due(), start + LATEST);
}

#[tokio::test(start_paused = true)]
async fn a_wake_up_is_a_timer_up_to_the_resync() {
    let controller = idle();
    let now = Timestamp::now();
    let at = |span: Duration, search| Plan { wake_up: Some(now + span), search, ..Plan::default() };
    let after = |span| controller.planned + span;
    let soon = Duration::from_secs(3);
    assert_eq!(controller.next_timer(&at(soon, false), now), (after(soon), Reason::Timer));
    assert_eq!(controller.next_timer(&at(soon, true), now), (after(IDLE), Reason::Search));
    let late = Duration::from_mins(3);
    assert_eq!(controller.next_timer(&at(late, false), now), (after(RESYNC), Reason::Resync));
}

/// A search comes after [`IDLE`], once; again only if something has changed, or after [`SEARCH_AGAIN`].
#[tokio::test(start_paused = true)]
async fn better_nodes_are_looked_for_when_all_is_quiet() {
    let server = Server::new(&[], nothing);
    let searches = Arc::new(Mutex::new(Vec::new()));
    let (seen, begin) = (Arc::clone(&searches), Instant::now());
    run_for(&server, Duration::from_secs(320), move |_: &Snapshot, settings: Settings, _| {
        if settings.search {
            seen.lock().unwrap().push(begin.elapsed().as_secs());
        }
        Plan { search: !settings.search, ..Plan::default() }
    })
    .await
    .unwrap();
    let searches = searches.lock().unwrap().clone();
    assert_eq!((searches.len(), searches[0]), (2, 1), "{searches:?}");
    assert!(searches[1] >= SEARCH_AGAIN.as_secs(), "{searches:?}");
}

/// An eviction asks the budgets; a forced one deletes the pod.
#[tokio::test(start_paused = true)]
async fn a_forced_eviction_is_a_deletion() {
    for (force, want) in [(None, "POST eviction"), (Some(5), "DELETE p")] {
        let status = |_: &Method, _: &str, _| {
            (201, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
        };
        let server = Server::new(&[], status);
        run_for(&server, Duration::from_millis(200), move |_: &Snapshot, _, _| {
            let pod = ObjectKey { namespace: "ns".to_owned(), name: "p".to_owned() };
            Plan { evict: vec![Eviction { pod, uid: "pu".to_owned(), force }], ..Plan::default() }
        })
        .await
        .unwrap();
        assert_eq!(server.requests(), [want]);
    }
}
