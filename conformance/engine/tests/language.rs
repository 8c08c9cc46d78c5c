//! What a scenario is after it was read: head, outline, and the steps of each case.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use conformance_engine::{
    catalogue::Catalogue,
    implementation::{Dialect, Shape},
    rows::Feature,
    scenario::{Count, Isolation, Origin, Scenario, Step, Vars},
    waits::Wait,
};
use rstest::rstest;
use serde_json::json;

const TABLE: &str = r#"
apiVersion: bufconf.dev/v1alpha1
kind: Scenario
metadata: {name: sizes}
spec:
  id: CB-RES-001
  title: Sizes
  level: core
  profiles: [BUFFER-RESOLVE]
  sources: [{title: API text, ref: here}]
  needs: {isolation: quiet, pool: create}
  cases:
    - {name: V1, replicas: 5, want: 5}
    - {name: V5, limits: {cpu: "5"}, want: 5}
  steps:
    - apply:
        apiVersion: autoscaling.x-k8s.io/v1beta1
        kind: CapacityBuffer
        metadata: {name: "b-${run}"}
        spec: {podTemplateRef: {name: "${pool}"}, replicas: "${case.replicas?}", limits: "${case.limits?}"}
    - assert:
        req: ${case.name}
        resource:
          apiVersion: autoscaling.x-k8s.io/v1beta1
          kind: CapacityBuffer
          name: b-${run}
          status: {replicas: "${case.want}"}
        cel: ["self.status.replicas == ${case.want}"]
    - claims: {dialect: karpenter, req: H11, equals: baseline}
    - assert:
        feature: ObservedGeneration
        req: G3
        within: resolve
        resource: {apiVersion: v1, kind: Node, metadata: {name: "${pool}", labels: {a: b}}}
"#;

fn scenario() -> Scenario {
    let catalogue =
        Catalogue::parse([("resolve/sizes.yaml".to_owned(), TABLE.to_owned())], Origin::Catalogue);
    match catalogue {
        Ok(catalogue) => catalogue.get("CB-RES-001").unwrap().clone(),
        Err(diagnostics) => panic!("{}", diagnostics[0]),
    }
}

fn vars() -> Vars {
    let shape: Shape = serde_json::from_value(json!({"cpu": "2", "memory": "4Gi", "pods": 32})).unwrap();
    Vars::for_scenario("r1", "CB-RES-001", "ns").with_pool("p1", &shape)
}

#[test]
fn the_head_is_there() {
    let scenario = scenario();
    assert_eq!((scenario.name.as_str(), scenario.file.as_str()), ("sizes", "resolve/sizes.yaml"));
    assert_eq!(scenario.needs.isolation, Isolation::Quiet);
    assert!(scenario.needs.wants_pool());
    let names: Vec<_> = scenario.cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names, ["V1", "V5"]);
}

#[test]
fn the_outline_says_what_is_judged_before_anything_runs() {
    let outline = scenario().outline;
    let text: Vec<String> = outline
        .iter()
        .map(|step| {
            let rows: Vec<_> = step.rows.iter().map(|row| row.id).collect();
            format!("{} {} {:?} {:?} {:?}", step.line, step.title, step.dialect, step.feature, rows)
        })
        .collect();
    assert_eq!(
        text,
        [
            "16 apply CapacityBuffer/b-${run} None None []",
            "21 assert CapacityBuffer/b-${run} None None [\"V1\", \"V5\"]",
            "29 claims equals baseline Some(Karpenter) None [\"H11\"]",
            "30 assert Node/${pool} None Some(ObservedGeneration) [\"G3\"]",
        ]
    );
}

#[test]
fn steps_are_bound_case_by_case() {
    let scenario = scenario();
    let specs: Vec<_> = scenario
        .cases
        .iter()
        .map(|case| match &scenario.bind(&vars().with_case(case)).unwrap()[..] {
            [Step::Apply(manifests), Step::Assert(assert), ..] => {
                assert_eq!(manifests.0[0].target.name, "b-r1");
                assert_eq!(assert.resource.partial, *json!({"status": {"replicas": 5}}).as_object().unwrap());
                assert_eq!(assert.cel, ["self.status.replicas == 5"]);
                manifests.0[0].body["spec"].clone()
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        specs,
        [
            json!({"podTemplateRef": {"name": "p1"}, "replicas": 5}),
            json!({"podTemplateRef": {"name": "p1"}, "limits": {"cpu": "5"}}),
        ]
    );
}

#[test]
fn keys_of_a_judgement_have_their_defaults() {
    let scenario = scenario();
    let steps = scenario.bind(&vars().with_case(&scenario.cases[0])).unwrap();
    assert_eq!(steps[0].judge().within, None);
    assert_eq!(steps[1].judge().within, Some(Wait::Observe));
    assert_eq!(steps[1].judge().req.unwrap().to_string(), "V1");
    let claims = steps[2].judge();
    assert_eq!((claims.within, claims.dialect), (Some(Wait::Release), Some(Dialect::Karpenter)));
    assert!(matches!(&steps[2], Step::Claims(count) if count.equals == Some(Count::Baseline)));
    let last = steps[3].judge();
    assert_eq!((last.within, last.feature), (Some(Wait::Resolve), Some(Feature::ObservedGeneration)));
    match &steps[3] {
        Step::Assert(assert) => {
            assert_eq!(assert.resource.target.name, "p1");
            assert_eq!(
                assert.resource.partial,
                *json!({"metadata": {"labels": {"a": "b"}}}).as_object().unwrap()
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_variable_without_a_value_is_told_with_its_place() {
    let scenario = scenario();
    let bare = Vars::for_scenario("r1", "CB-RES-001", "ns").with_case(&scenario.cases[0]);
    let error = scenario.bind(&bare).unwrap_err();
    assert_eq!((error.line, error.file.as_str()), (20, "resolve/sizes.yaml"));
    assert_eq!(error.message, "unknown variable `${pool}`");
}

/// Each verb in its plainest form is read as that verb.
#[rstest]
#[case("apply: [{apiVersion: v1, kind: Pod, metadata: {name: a}}]")]
#[case(
    "create: {resource: {apiVersion: v1, kind: Pod, metadata: {name: a}}, rejected: {status: 422}, req: A6}"
)]
#[case("update: {apiVersion: v1, kind: Pod, name: a, merge: {spec: null}}")]
#[case(
    "patch: {apiVersion: v1, kind: Pod, name: a, subresource: status, json: [{op: remove, path: /status}]}"
)]
#[case("scale: {apiVersion: apps/v1, kind: Deployment, name: a, replicas: 3}")]
#[case("delete: {apiVersion: v1, kind: Pod, name: a, propagation: Orphan}")]
#[case("assert: {resource: {apiVersion: v1, kind: Pod, name: a, status: null}, cel: [self.a == 1]}")]
#[case("absent: {resource: {apiVersion: v1, kind: Pod, name: a}}")]
#[case("headroom: {buffers: [web], atLeast: 2}")]
#[case("probe: {buffer: web, count: 2}")]
#[case("hold: {for: quick, headroom: {buffer: web}, nodesBorn: 0, nodesLost: 0}")]
#[case("nodes: {equals: baseline, born: 0}")]
#[case("claims: {dialect: karpenter, atMost: 3}")]
#[case("event: {regarding: {kind: CapacityBuffer, name: web}, reason: TriggeredScaleUp}")]
#[case("pods: {selector: {app: a}, phase: Running, count: 1}")]
#[case("offset: {from: lastStatusWrite, of: CapacityBuffer/web, period: 30s, at: 12s}")]
#[case("trigger: {hook: restart}")]
#[case("mark: here")]
fn every_verb_is_read(#[case] step: &str) {
    let text = format!(
        "
apiVersion: bufconf.dev/v1alpha1
kind: Scenario
metadata: {{name: verbs}}
spec:
  id: CB-RES-001
  title: Verbs
  level: provisional
  profiles: [BUFFER-RESOLVE]
  sources: [{{title: API text, ref: here}}]
  needs: {{nodes: 1, hooks: [restart]}}
  steps:
    - apply: {{apiVersion: autoscaling.x-k8s.io/v1beta1, kind: CapacityBuffer, metadata: {{name: web}}}}
    - {step}
"
    );
    let catalogue = Catalogue::parse([("verbs.yaml".to_owned(), text)], Origin::Catalogue).unwrap();
    let steps = catalogue.scenarios()[0].bind(&vars()).unwrap();
    assert_eq!(steps[1].verb(), step.split(':').next().unwrap());
    assert!(steps[1].title().starts_with(steps[1].verb()));
}
