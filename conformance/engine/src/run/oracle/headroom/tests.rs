use super::*;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

fn amounts(cpu: i64, memory: i64, pods: i64) -> Requests {
    [("cpu", Quantity::milli(cpu)), ("memory", Quantity::units(memory)), ("pods", Quantity::units(pods))]
        .map(|(name, amount)| (name.to_owned(), amount))
        .into()
}

fn node(name: &str, cpu: i64) -> Node {
    let labels = [("kubernetes.io/hostname", name), ("zone", &name[..1])];
    Node {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        allocatable: amounts(cpu, 10_000, 10),
        ready: true,
        ..Node::default()
    }
}

fn pod(node: &str, cpu: i64) -> Pod {
    Pod {
        namespace: "ns".to_owned(),
        name: "p".to_owned(),
        node: Some(node.to_owned()),
        phase: "Running".to_owned(),
        requests: Some([("cpu".to_owned(), Quantity::milli(cpu))].into()),
        ..Pod::default()
    }
}

fn chunk(buffer: &str, cpu: &str, wanted: u64, more: &Value) -> Chunk {
    let mut spec = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let template = json!({"metadata": {"labels": {"app": buffer}}, "spec": spec});
    Chunk::new(buffer, "ns", &serde_json::from_value(template).unwrap(), wanted).unwrap()
}

fn apart(app: &str, key: &str) -> Value {
    let term = json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}});
    json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

fn total(nodes: &[Node], pods: &[Pod], chunk: &Chunk) -> u64 {
    measure(nodes, pods, std::slice::from_ref(chunk)).unwrap().chunks[0].placed
}

#[rstest]
#[case::plain("1", &[], 4)]
#[case::milli("333m", &[], 12)]
#[case::beside_a_pod("1", &[pod("a1", 500)], 3)]
#[case::pod_elsewhere("1", &[pod("other", 500)], 4)]
#[case::finished_pod("1", &[Pod { phase: "Succeeded".to_owned(), ..pod("a1", 500) }], 4)]
#[case::unbound_pod("1", &[Pod { node: None, ..pod("a1", 500) }], 4)]
#[case::overcommitted("1", &[pod("a1", 9000)], 2)]
#[case::limited_by_pods("0", &[], 20)]
#[case::too_large("3", &[], 0)]
fn counts(#[case] cpu: &str, #[case] pods: &[Pod], #[case] expected: u64) {
    let nodes = [node("a1", 2000), node("b1", 2000)];
    assert_eq!(total(&nodes, pods, &chunk("web", cpu, 1, &json!({}))), expected);
}

#[test]
fn a_resource_that_the_node_lacks_is_zero() {
    let gpu = json!({"containers": [{"name": "c", "resources": {"limits": {"example.com/gpu": "1"}}}]});
    let chunk = chunk("web", "1", 1, &gpu);
    let headroom = measure(&[node("a1", 2000)], &[], &[chunk]).unwrap();
    assert_eq!(
        headroom.table(),
        "web: 0 of 1 fit on 1 nodes\n  a1: 0 (example.com/gpu: 0 free of 0, 1 needed)\n"
    );
}

#[test]
fn apart_by_hostname_is_one_a_node() {
    let chunk = chunk("web", "100m", 3, &apart("web", "kubernetes.io/hostname"));
    let nodes = [node("a1", 2000), node("a2", 2000)];
    assert_eq!(total(&nodes, &[], &chunk), 2);
    // a real pod of the same labels is there already
    let real = Pod { labels: chunk.labels.clone(), ..pod("a1", 100) };
    assert_eq!(total(&nodes, std::slice::from_ref(&real), &chunk), 1);
    // ... in another namespace it does not count
    let elsewhere = Pod { namespace: "other".to_owned(), ..real };
    assert_eq!(total(&nodes, &[elsewhere], &chunk), 2);
}

#[test]
fn apart_by_zone_is_one_a_zone() {
    let chunk = chunk("web", "100m", 3, &apart("web", "zone"));
    assert_eq!(total(&[node("a1", 2000), node("a2", 2000), node("b1", 2000)], &[], &chunk), 2);
}

#[test]
fn apart_from_others_only_is_no_cap() {
    let chunk = chunk("web", "100m", 3, &apart("db", "kubernetes.io/hostname"));
    assert_eq!(total(&[node("a1", 1000)], &[], &chunk), 10);
    let db = Pod { labels: [("app".to_owned(), "db".to_owned())].into(), ..pod("a1", 100) };
    assert_eq!(total(&[node("a1", 1000)], &[db], &chunk), 0);
}

#[test]
fn larger_chunks_go_first_and_leave_the_rest() {
    let chunks = [chunk("small", "500m", 2, &json!({})), chunk("large", "1500m", 1, &json!({}))];
    let headroom = measure(&[node("a1", 2000)], &[], &chunks).unwrap();
    assert_eq!(headroom.summary(), "large: 1 of 1 fit, small: 1 of 2 fit");
    assert!(!headroom.suffices());
}

#[test]
fn a_buffer_leaves_the_only_node_of_another_alone() {
    // the large one could go to either node, the small one only to `a1`
    let chunks = [
        chunk("small", "500m", 4, &json!({"nodeSelector": {"zone": "a"}})),
        chunk("large", "2", 1, &json!({})),
    ];
    let headroom = measure(&[node("a1", 2000), node("b1", 2000)], &[], &chunks).unwrap();
    assert!(headroom.suffices(), "{}", headroom.table());
}

#[test]
fn chunks_of_two_buffers_keep_apart_too() {
    let rule = apart("web", "kubernetes.io/hostname");
    let keeper = chunk("web", "1", 1, &rule);
    let other =
        Chunk { buffer: "web-2".to_owned(), spec: chunk("x", "1", 1, &json!({})).spec, ..keeper.clone() };
    let headroom = measure(&[node("a1", 4000)], &[], &[keeper, other]).unwrap();
    assert_eq!(headroom.summary(), "web: 1 of 1 fit, web-2: 0 of 1 fit");
}

#[test]
fn table_says_why() {
    let nodes = [
        node("a1", 2000),
        Node { ready: false, ..node("a2", 2000) },
        Node {
            taints: serde_json::from_value(json!([{"key": "k", "effect": "NoSchedule"}])).unwrap(),
            ..node("a3", 2000)
        },
        node("b1", 2000),
    ];
    let chunk = chunk("web", "1500m", 4, &json!({"nodeSelector": {"zone": "a"}}));
    let headroom = measure(&nodes, &[pod("a1", 1000)], &[chunk]).unwrap();
    insta::assert_snapshot!(headroom.table(), @r"
    web: 0 of 4 fit on 4 nodes
      a1: 0 (cpu: 1 free of 2, 1500m needed)
      a2: 0 (not Ready)
      a3: 0 (taint k:NoSchedule is not tolerated)
      b1: 0 (node selector wants zone=a, is b)
    ");
}

#[test]
fn many_nodes_of_which_the_same_is_true_share_a_line() {
    let mut nodes: Vec<_> = (10..16).map(|n| node(&format!("a{n}"), 2000)).collect();
    nodes.extend((20..25).map(|n| Node { deleting: true, ..node(&format!("a{n}"), 2000) }));
    nodes[3].ready = false;
    let chunk = chunk("web", "1500m", 7, &json!({}));
    insta::assert_snapshot!(measure(&nodes, &[], &[chunk]).unwrap().table(), @r"
    web: 5 of 7 fit on 11 nodes
      5 nodes, a10 to a15: 1
      a13: 0 (not Ready)
      5 nodes, a20 to a24: 0 (being deleted)
    ");
}

fn any_node() -> impl Strategy<Value = Node> {
    (0..20_usize, 0..8_000_i64, 0..20_i64, any::<bool>()).prop_map(|(name, cpu, pods, ready)| Node {
        allocatable: amounts(cpu, 10_000, pods),
        ready,
        ..node(&format!("{}{name}", ['a', 'b'][name % 2]), cpu)
    })
}

fn any_nodes() -> impl Strategy<Value = Vec<Node>> {
    prop::collection::btree_map(0..20_usize, any_node(), 0..10).prop_map(|nodes| {
        let rename = |(name, one): (usize, Node)| {
            let named = node(&format!("{}{name}", ['a', 'b'][name % 2]), 0);
            Node { allocatable: one.allocatable, ready: one.ready, ..named }
        };
        nodes.into_iter().map(rename).collect()
    })
}

fn any_pods() -> impl Strategy<Value = Vec<Pod>> {
    let pod = (0..20_usize, 0..2_000_i64)
        .prop_map(|(name, cpu)| pod(&format!("{}{name}", ['a', 'b'][name % 2]), cpu));
    prop::collection::vec(pod, 0..20)
}

fn any_chunk(buffer: &'static str) -> impl Strategy<Value = Chunk> {
    let rules =
        prop::sample::select(vec![json!({}), apart(buffer, "zone"), apart(buffer, "kubernetes.io/hostname")]);
    (0..3_000_u32, 0..6_u64, rules)
        .prop_map(move |(cpu, wanted, rules)| chunk(buffer, &format!("{cpu}m"), wanted, &rules))
}

proptest! {
    #[test]
    fn more_allocatable_never_fits_fewer(
        nodes in any_nodes(), pods in any_pods(), chunk in any_chunk("web"), which in any::<prop::sample::Index>(), more in 0..4_000_i64
    ) {
        let before = total(&nodes, &pods, &chunk);
        let mut nodes = nodes;
        if !nodes.is_empty() {
            let at = which.index(nodes.len());
            requests::add(&mut nodes[at].allocatable, &amounts(more, 0, 1));
        }
        prop_assert!(total(&nodes, &pods, &chunk) >= before);
    }

    #[test]
    fn one_more_pod_never_fits_more(nodes in any_nodes(), pods in any_pods(), chunk in any_chunk("web"), cpu in 0..2_000_i64) {
        let before = total(&nodes, &pods, &chunk);
        let mut pods = pods;
        pods.push(pod("a0", cpu));
        prop_assert!(total(&nodes, &pods, &chunk) <= before);
    }

    #[test]
    fn order_does_not_matter(
        nodes in any_nodes(), pods in any_pods(), a in any_chunk("web"), b in any_chunk("db")
    ) {
        let forwards = measure(&nodes, &pods, &[a.clone(), b.clone()]).unwrap();
        let reversed_pods: Vec<_> = pods.iter().rev().cloned().collect();
        let chunks = [b, a];
        let backwards = measure(nodes.iter().rev(), &reversed_pods, &chunks).unwrap();
        prop_assert_eq!(forwards, backwards);
    }
}

#[test]
fn a_pod_that_cannot_be_read_is_not_judged() {
    let mut unread = pod("n", 100);
    unread.requests = None;
    let nodes = [node("n", 1000)];
    let chunks = [chunk("web", "500m", 1, &json!({}))];
    assert!(matches!(measure(&nodes, [&unread], &chunks), Err(NotJudged::Pod(_))));
}
