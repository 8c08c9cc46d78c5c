use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use http::{Request, Response};
use kube::{client::Body, core::Status};
use rstest::rstest;
use tracing_test::traced_test;

use super::*;

/// Requests that a server has got, as method and path.
type Got = Arc<Mutex<Vec<String>>>;

/// A cluster whose server knows pods and answers every other request with the next of these; the last one for ever.
fn cluster(answers: &'static [(u16, &'static str)]) -> (Cluster, Got) {
    let got = Got::default();
    let seen = Arc::clone(&got);
    let service = tower::service_fn(move |request: Request<Body>| {
        let what = format!("{} {}", request.method(), request.uri().path());
        let answer = if what == "GET /api/v1" {
            let pods = json!({"name": "pods", "kind": "Pod", "namespaced": true, "singularName": "", "verbs": ["get"]});
            (200, json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [pods]}).to_string())
        } else {
            let mut seen = seen.lock().unwrap();
            seen.push(what);
            let (code, body) = answers[(seen.len() - 1).min(answers.len() - 1)];
            (code, body.to_owned())
        };
        let response = Response::builder().status(answer.0).body(Body::from(answer.1.into_bytes()));
        async move { Ok::<_, Infallible>(response.unwrap()) }
    });
    (Cluster::new(Client::new(service, "default")), got)
}

fn pod() -> Key {
    Key {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        namespace: Some("ns".to_owned()),
        name: "web".to_owned(),
    }
}

const OVERLOADED: (u16, &str) = (503, r#"{"status": "Failure", "code": 503, "message": "wait"}"#);
const MISSING: (u16, &str) =
    (404, r#"{"status": "Failure", "code": 404, "reason": "NotFound", "message": "no such pod"}"#);
const THERE: (u16, &str) = (200, r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}"#);
const PATH: &str = "/api/v1/namespaces/ns/pods/web";

#[tokio::test(start_paused = true)]
#[traced_test]
async fn what_may_pass_is_repeated() {
    let (cluster, got) = cluster(&[OVERLOADED, OVERLOADED, THERE]);
    let object = cluster.get(&pod()).await.unwrap().unwrap();
    assert_eq!(object["metadata"]["name"], "web");
    assert_eq!(*got.lock().unwrap(), vec![format!("GET {PATH}"); 3]);
    assert!(logs_contain("repeating a request"));
}

#[tokio::test(start_paused = true)]
async fn repeating_ends() {
    let (cluster, got) = cluster(&[OVERLOADED]);
    let error = cluster.get(&pod()).await.unwrap_err();
    assert_eq!(error.detail(), "reading Pod/web: 503 wait");
    assert_eq!(got.lock().unwrap().len(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_is_asked_once() {
    let hanging =
        tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
    let started = tokio::time::Instant::now();
    let error = Cluster::new(Client::new(hanging, "default")).answers().await.unwrap_err();
    assert_eq!(started.elapsed(), ANSWER);
    let detail = error.detail();
    assert_eq!(detail, "asking the API server for its version: no answer within 20.0 s");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_is_no_error() {
    let (cluster, got) = cluster(&[MISSING]);
    assert_eq!(cluster.get(&pod()).await.unwrap(), None);
    assert!(!cluster.delete(&pod(), &DeleteParams::default()).await.unwrap());
    assert_eq!(*got.lock().unwrap(), [format!("GET {PATH}"), format!("DELETE {PATH}")]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_told_at_once() {
    let (cluster, got) = cluster(&[(422, r#"{"status": "Failure", "code": 422, "message": "no"}"#)]);
    let error = cluster.apply(&pod(), &json!({})).await.unwrap_err();
    assert_eq!((error.status(), error.detail().as_str()), (Some(422), "applying Pod/web: 422 no"));
    assert_eq!(*got.lock().unwrap(), [format!("PATCH {PATH}")]);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_is_told_apart() {
    let (cluster, _) = cluster(&[MISSING]);
    let target = |api_version: &str, kind: &str| Target {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: "x".to_owned(),
        namespace: None,
    };
    for (api_version, kind) in [("v1", "Nothing"), ("example.com/v1", "Pod")] {
        let error = cluster.key(&target(api_version, kind), "ns").await.unwrap_err();
        assert!(error.is_not_served(), "{}", error.detail());
    }
    assert_eq!(cluster.key(&target("v1", "Pod"), "ns").await.unwrap().namespace.as_deref(), Some("ns"));
}

#[rstest]
#[case(404, false)]
#[case(409, false)]
#[case(422, false)]
#[case(429, true)]
#[case(500, true)]
#[case(503, true)]
fn what_may_pass(#[case] code: u16, #[case] expected: bool) {
    let status = Status { code, ..Status::default() };
    assert_eq!(may_pass(&kube::Error::Api(status.boxed())), expected);
}

#[test]
fn labels_are_added_and_others_kept() {
    let key = Key {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        namespace: Some("ns".to_owned()),
        name: "web".to_owned(),
    };
    let body = json!({"metadata": {"name": "web", "labels": {"app": "web"}}});
    similar_asserts::assert_eq!(
        labelled(body, &key, "r1", "cb-act-001"),
        json!({"metadata": {
            "name": "web",
            "namespace": "ns",
            "labels": {"app": "web", "bufconf.dev/run": "r1", "bufconf.dev/scenario": "cb-act-001"},
        }})
    );
    similar_asserts::assert_eq!(labelled(json!({}), &key, "r", "s")["metadata"]["namespace"], json!("ns"));
}
