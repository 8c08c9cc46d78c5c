//! A cluster that stays: up, used, tested as an existing one, down.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod support;

use std::{
    collections::BTreeSet,
    fs,
    net::{Ipv4Addr, TcpStream},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use conformance_report::model::Outcome;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ObjectMeta, PostParams},
};
use serde_json::{Value, json};
use similar_asserts::assert_eq;
use test_cluster::existing::MARKER;

use support::{PATIENCE, Said, World, workspace};

const NAME: &str = "mine";
const VERSION: &str = "autoscaling.x-k8s.io/v1beta1";
/// supervisor, four servers, cloud and controller
const PROCESSES: usize = 7;

#[tokio::test]
async fn a_cluster_that_stays_works_and_goes() {
    let world = World::new();
    let kubeconfig = up(&world);
    assert_eq!(fs::metadata(&kubeconfig).unwrap().permissions().mode() & 0o777, 0o600);
    let processes = world.processes();
    assert_eq!(processes.len(), PROCESSES, "{processes:#?}");

    let status = bufconf(&world, &["cluster", "status"]).expect(0).stdout;
    assert!(status.starts_with(&format!("{NAME}: up, kubeconfig {}\n", kubeconfig.display())), "{status}");
    let shown: BTreeSet<&str> =
        status.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    let wanted =
        ["cloud", "controller", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];
    assert_eq!(shown, BTreeSet::from(wanted));

    assert_eq!(up(&world), kubeconfig, "the second call finds the first");
    assert_eq!(world.processes(), processes);

    let client = buffer_client::connect(Some(&kubeconfig)).await.unwrap();
    use_buffers(&client).await;
    test_as_existing(&world, &client, &kubeconfig).await;

    let ports = listening(&world);
    assert!(ports.len() >= PROCESSES - 1, "{ports:?}");
    bufconf(&world, &["cluster", "down", "--name", NAME]).expect(0);
    assert_eq!(world.processes(), [], "down returns when everything has ended");
    let open: Vec<_> =
        ports.iter().filter(|&&port| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()).collect();
    assert!(open.is_empty(), "{open:?}");
    assert_eq!(world.folders("clusters"), Vec::<PathBuf>::new());
    assert_eq!(world.folders("runs"), Vec::<PathBuf>::new());
    let said = bufconf(&world, &["cluster", "down", "--name", NAME]).expect(0);
    assert_eq!(said.stderr, format!("there is no cluster {NAME}\n"));
    assert_eq!(bufconf(&world, &["cluster", "status"]).expect(0).stdout, "no clusters\n");
}

fn bufconf(world: &World, arguments: &[&str]) -> Said {
    world.bufconf(arguments).output().unwrap().into()
}

/// The kubeconfig of the cluster.
fn up(world: &World) -> PathBuf {
    let said = bufconf(world, &["cluster", "up", "--with", "reference", "--name", NAME]).expect(0);
    said.stdout.lines().last().unwrap().into()
}

/// The ports on which the world's processes listen, by the sockets that they hold.
fn listening(world: &World) -> BTreeSet<u16> {
    let sockets: BTreeSet<String> = world
        .processes()
        .iter()
        .filter_map(|process| fs::read_dir(format!("/proc/{}/fd", process.pid)).ok())
        .flatten()
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()?.into_os_string().into_string().ok())
        .filter_map(|target| Some(target.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .flat_map(|table| {
            let text = fs::read_to_string(table).unwrap();
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .filter_map(|line| {
            const LISTEN: &str = "0A";
            let fields: Vec<&str> = line.split_whitespace().collect();
            let ours = fields[3] == LISTEN && sockets.contains(fields[9]);
            ours.then(|| u16::from_str_radix(fields[1].rsplit(':').next().unwrap(), 16).unwrap())
        })
        .collect()
}

fn api(client: &Client, version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

async fn create(client: &Client, object: Value) {
    let kind = object["kind"].as_str().unwrap().to_owned();
    let version = object["apiVersion"].as_str().unwrap().to_owned();
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    api(client, &version, &kind, Some("default")).create(&PostParams::default(), &object).await.unwrap();
}

/// A buffer is resolved, and shown with the documented columns.
async fn use_buffers(client: &Client) {
    create(
        client,
        json!({
            "apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "web"},
            "template": {"spec": {"containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
            ]}},
        }),
    )
    .await;
    create(
        client,
        json!({
            "apiVersion": VERSION, "kind": "CapacityBuffer", "metadata": {"name": "web"},
            "spec": {"podTemplateRef": {"name": "web"}, "replicas": 2},
        }),
    )
    .await;
    let buffers = api(client, VERSION, "CapacityBuffer", Some("default"));
    let resolved = async || {
        let buffer = buffers.get("web").await.unwrap();
        let conditions = buffer.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions
            .iter()
            .any(|condition| condition["type"] == "ReadyForProvisioning" && condition["status"] == "True")
    };
    let start = Instant::now();
    while !resolved().await {
        assert!(start.elapsed() < PATIENCE, "the buffer is not resolved");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    let request = http::Request::get(format!("/apis/{VERSION}/namespaces/default/capacitybuffers"))
        .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())
        .unwrap();
    let table: Value = client.request(request).await.unwrap();
    let columns: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| column["name"].as_str().unwrap())
        .collect();
    let wanted = [
        "Name",
        "Strategy",
        "PodTemplate",
        "Replicas",
        "ConditionsType",
        "ConditionsStatus",
        "ConditionsReason",
        "Age",
    ];
    assert_eq!(columns, wanted);
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..4], [json!("web"), json!("buffer.x-k8s.io/active-capacity"), json!("web"), json!(2)]);
}

/// Names of all objects that a run could leave.
async fn objects(client: &Client) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (version, kind) in [
        ("v1", "Namespace"),
        ("v1", "Pod"),
        (VERSION, "CapacityBuffer"),
        ("bufconf.dev/v1alpha1", "FakeNodeClass"),
        ("karpenter.sh/v1", "NodePool"),
        ("scheduling.k8s.io/v1", "PriorityClass"),
    ] {
        let list = api(client, version, kind, None).list(&kube::api::ListParams::default()).await.unwrap();
        names.extend(list.into_iter().map(|object| {
            let ObjectMeta { namespace, name, .. } = object.metadata;
            format!("{kind} {}/{}", namespace.unwrap_or_default(), name.unwrap())
        }));
    }
    names
}

/// The suite on this cluster: only when it may, and without a trace.
async fn test_as_existing(world: &World, client: &Client, kubeconfig: &Path) {
    let implementation = workspace().join("ci/implementations/reference.yaml").display().to_string();
    let kubeconfig = kubeconfig.display().to_string();
    let run = [
        "run",
        "zero-node-baseline",
        "--cluster",
        "existing",
        "--kubeconfig",
        &kubeconfig,
        "--implementation",
        &implementation,
        "--out",
        "out",
    ];
    let before = objects(client).await;
    let said = bufconf(world, &run).expect(2);
    assert!(said.stderr.contains("is not marked disposable"), "{}", said.stderr);
    assert!(said.stderr.contains(MARKER), "{}", said.stderr);
    assert_eq!(objects(client).await, before, "a cluster that must not be used is left alone");

    let marker = ConfigMap {
        metadata: ObjectMeta { name: Some(MARKER.to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    };
    let markers: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    markers.create(&PostParams::default(), &marker).await.unwrap();
    bufconf(world, &run).expect(0);
    let report = world.report("out");
    let result = report.results.iter().find(|result| result.name == "zero-node-baseline").unwrap();
    assert_eq!(result.outcome, Outcome::Passed);
    assert_eq!(report.environment.cluster, "existing");
    assert_eq!(objects(client).await, before, "the run has left something");
    assert_eq!(world.processes().len(), PROCESSES);
}
