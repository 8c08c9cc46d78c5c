use serde_json::json;

use super::*;

fn watched(api_version: &str, kind: &str) -> Watched {
    Watched { api_version: api_version.to_owned(), kind: kind.to_owned(), namespace: None }
}

fn nodes() -> Watched {
    watched("v1", "Node")
}

fn world(pool: Option<&str>) -> World {
    let scope = Scope {
        namespace: "ns".to_owned(),
        run: "r".to_owned(),
        scenario: "cb-act-001".to_owned(),
        pool: pool.map(str::to_owned),
    };
    World::new(scope)
}

fn node(name: &str, uid: &str, pool: &str) -> Value {
    json!({"metadata": {"name": name, "uid": uid, "labels": {"bufconf.dev/pool": pool}}})
}

fn count(world: &World) -> Count {
    world.read(|state| state.count("Node"))
}

fn lines(world: &World) -> Vec<String> {
    world.read(|state| state.timeline().iter().map(|one| format!("{} {}", one.object, one.what)).collect())
}

#[tokio::test(start_paused = true)]
async fn births_and_losses_count_from_the_baseline_on() {
    let world = world(Some("p"));
    world.seen(&nodes(), node("a", "1", "p"));
    world.take_baseline();
    assert_eq!(count(&world), Count { now: 1, baseline: 1, born: 0, lost: 0 });
    world.seen(&nodes(), node("b", "2", "p"));
    world.seen(&nodes(), node("b", "2", "p"));
    world.seen(&nodes(), node("other", "3", "q"));
    assert_eq!(count(&world), Count { now: 2, baseline: 1, born: 1, lost: 0 });
    world.gone(&nodes(), &node("a", "1", "p"));
    assert_eq!(count(&world), Count { now: 1, baseline: 1, born: 1, lost: 1 });
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_rebuilt_under_its_name_is_lost_and_born() {
    let world = world(Some("p"));
    world.take_baseline();
    world.seen(&nodes(), node("a", "1", "p"));
    // the watch was interrupted and never showed that the first one went
    world.seen(&nodes(), node("a", "2", "p"));
    assert_eq!(count(&world), Count { now: 1, baseline: 0, born: 2, lost: 1 });
    similar_asserts::assert_eq!(lines(&world), ["a created", "a deleted", "a created"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_is_born_when_its_label_comes() {
    let world = world(Some("p"));
    world.take_baseline();
    world.seen(&nodes(), json!({"metadata": {"name": "a", "uid": "1"}}));
    assert_eq!(count(&world).born, 0);
    world.seen(&nodes(), node("a", "1", "p"));
    assert_eq!(count(&world).born, 1);
}

#[tokio::test(start_paused = true)]
async fn a_new_list_shows_what_went_meanwhile() {
    let world = world(None);
    world.take_baseline();
    world.seen(&nodes(), node("a", "1", "p"));
    world.seen(&nodes(), node("b", "2", "p"));
    world.seen(&watched("v1", "Pod"), json!({"metadata": {"name": "a", "namespace": "ns", "uid": "3"}}));
    let kept = key_of(&nodes(), &node("b", "2", "p")).unwrap();
    world.synced(&nodes(), &[kept].into());
    assert_eq!(count(&world), Count { now: 1, baseline: 0, born: 2, lost: 1 });
    // only of the kind that was listed
    assert_eq!(world.read(|state| state.pods().count()), 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_complete_once_it_has_listed_and_begins_only_once() {
    let world = world(None);
    assert!(world.watch_begins(&nodes()));
    assert!(!world.watch_begins(&nodes()));
    assert!(!world.read(State::complete));
    world.synced(&nodes(), &BTreeSet::new());
    assert!(world.read(State::complete));
    // all namespaces cover one
    assert!(world.watch_begins(&watched("v1", "Pod")));
    assert!(!world.watch_begins(&Watched { namespace: Some("ns".to_owned()), ..watched("v1", "Pod") }));
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_broken_only_while_it_repeats_its_error() {
    let world = world(None);
    assert!(world.watch_begins(&nodes()));
    world.watch_failed(&nodes(), "refused".to_owned());
    tokio::time::advance(Duration::from_secs(3)).await;
    world.watch_failed(&nodes(), "refused again".to_owned());
    let broken = world.read(State::broken);
    assert_eq!(broken.as_deref(), Some("the watch of Nodes has been broken for 3.0s: refused again"));
    tokio::time::advance(STILL_BROKEN).await;
    assert_eq!(world.read(State::broken), None);
}

#[tokio::test(start_paused = true)]
async fn only_a_change_of_the_status_moves_its_time() {
    let world = world(None);
    let buffers = watched("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer");
    let buffer = |label: &str, replicas: u32| json!({"metadata": {"name": "web", "namespace": "ns", "uid": "1", "labels": {"l": label}}, "status": {"replicas": replicas}});
    let key = key_of(&buffers, &buffer("a", 1)).unwrap();
    let age = || world.read(|state| state.tracked(&key).unwrap().status_changed.elapsed().as_secs());
    world.seen(&buffers, buffer("a", 1));
    tokio::time::advance(Duration::from_secs(10)).await;
    world.seen(&buffers, buffer("b", 1));
    assert_eq!(age(), 10);
    world.seen(&buffers, buffer("b", 2));
    assert_eq!(age(), 0);
    let versions = world.read(|state| state.tracked(&key).unwrap().versions.len());
    assert_eq!(versions, 3);
}

#[tokio::test(start_paused = true)]
async fn events_are_kept_once_and_only_of_the_scenario() {
    let world = world(Some("p"));
    let events = watched("v1", "Event");
    let event = |kind: &str, namespace: &str, name: &str, count: u32| {
        json!({
            "metadata": {"name": format!("{name}.{count}"), "namespace": "default", "uid": name},
            "involvedObject": {"kind": kind, "namespace": namespace, "name": name},
            "reason": "Unconsolidatable", "message": "has buffer pods", "count": count,
        })
    };
    world.seen(&nodes(), node("a", "1", "p"));
    assert!(world.watch_begins(&events));
    world.seen(&events, event("Node", "", "a", 1));
    assert!(world.read(|state| state.events().is_empty()), "it was there before the scenario");
    world.synced(&events, &BTreeSet::new());
    world.seen(&events, event("Node", "", "a", 2));
    world.seen(&events, event("Node", "", "a", 3));
    world.seen(&events, event("Node", "", "elsewhere", 1));
    world.seen(&events, event("CapacityBuffer", "ns", "web", 1));
    world.seen(&events, event("CapacityBuffer", "other", "web", 1));
    let about: Vec<_> = world
        .read(|state| state.events().iter().map(|event| format!("{}/{}", event.kind, event.name)).collect());
    similar_asserts::assert_eq!(about, ["Node/a", "CapacityBuffer/web"]);
}
