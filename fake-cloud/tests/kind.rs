//! Claims become kind nodes, whatever happens on the way: real containers, real kubelets.
//!
//! Where Docker, the command `kind` or the node image is missing, the tests are listed as ignored and the reason is told.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test without libtest's `#[test]`

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use buffer_api::{FakeNodeClass, NodeClaim};
use fake_cloud::kind::{ATTEMPT, Docker, Owner, Template, container, container_name};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Node, Pod},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::json;
use testcontainers::{GenericImage, ImageExt, runners::AsyncRunner};

/// Nothing here takes this long; a hang shall not last for ever.
const PATIENCE: Duration = Duration::from_mins(4);
const IMAGE: &str = "bufconf/kind-node";

fn main() -> ExitCode {
    let missing = missing();
    if let Some(missing) = &missing {
        eprintln!("could not run: {missing}");
    }
    let trial = |name: &str, test: fn()| {
        let test = move || {
            test();
            Ok::<(), Failed>(())
        };
        Trial::test(name, test).with_ignored_flag(missing.is_some())
    };
    let trials = vec![
        trial("claims_become_nodes_whatever_happens", claims_become_nodes_whatever_happens),
        trial("clouds_of_two_clusters_see_their_own_containers_only", clouds_see_their_own_containers_only),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn said(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}

/// What is missing for these tests, if anything is.
fn missing() -> Option<String> {
    said("docker", &["version"]).and_then(|_| image()).and_then(|_| kind()).err()
}

/// The command `kind`: on the PATH, or where `ci/kind-node/build` leaves it.
fn kind() -> Result<String, String> {
    let home = std::env::var("HOME").unwrap_or_default();
    let cache = std::env::var("BUFCONF_CACHE").unwrap_or_else(|_| format!("{home}/.cache/bufconf"));
    let candidates = ["kind".to_owned(), format!("{cache}/bin/kind")];
    let found = candidates.into_iter().find(|program| said(program, &["version"]).is_ok());
    found.ok_or_else(|| "the command kind is missing".to_owned())
}

/// The node image that `ci/kind-node/build` has made.
fn image() -> Result<String, String> {
    let images = said("docker", &["images", "--format", "{{.Repository}}:{{.Tag}}", IMAGE])?;
    images
        .lines()
        .next()
        .map(str::to_owned)
        .ok_or_else(|| format!("there is no image {IMAGE}; see ci/kind-node"))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().unwrap()
}

/// A kind cluster that goes when the test does.
struct Cluster {
    kind: String,
    name: String,
    folder: tempfile::TempDir,
    client: Client,
}

impl Cluster {
    async fn create(name: &str) -> Self {
        let (kind, image) = (kind().unwrap(), image().unwrap());
        let name = format!("{name}-{}", std::process::id());
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("kind.yaml");
        let cgroup_v1 = !Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let fail_v1 = if cgroup_v1 { ", failCgroupV1: false" } else { "" };
        let text = format!(
            "{{kind: Cluster, apiVersion: kind.x-k8s.io/v1alpha4, nodes: [{{role: control-plane}}],\n\
             networking: {{disableDefaultCNI: true, kubeProxyMode: none}}, kubeadmConfigPatches: [\n\
             \"{{kind: InitConfiguration, skipPhases: [preflight, addon/kube-proxy, addon/coredns]}}\",\n\
             \"{{kind: KubeletConfiguration, cgroupDriver: cgroupfs, cgroupRoot: /{fail_v1}}}\"]}}\n"
        );
        std::fs::write(&config, text).unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let (config, file) = (config.display().to_string(), kubeconfig.display().to_string());
        let arguments = [
            "create", "cluster", "-q", "--wait", "120s", "--name", &name, "--image", &image, "--config",
            &config,
        ];
        said(&kind, &[&arguments[..], &["--kubeconfig", &file]].concat()).unwrap();
        let client = buffer_client::connect(Some(&kubeconfig)).await.unwrap();
        let cluster = Self { kind, name, folder, client };
        cluster.prepare().await;
        cluster
    }

    async fn prepare(&self) {
        let crds: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for crd in buffer_api::crd::all() {
            crds.create(&PostParams::default(), &crd).await.unwrap();
        }
        let classes: Api<FakeNodeClass> = Api::all(self.client.clone());
        let mut class = FakeNodeClass::new("default", buffer_api::FakeNodeClassSpec::default());
        class.metadata = ObjectMeta { name: Some("default".to_owned()), ..ObjectMeta::default() };
        eventually("the kinds are served", async || {
            classes.create(&PostParams::default(), &class).await.is_ok()
        })
        .await;
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    fn logs(&self) -> PathBuf {
        self.folder.path().join("joins")
    }

    /// A cloud process, `docker` as the daemon's address if one is given.
    fn cloud(&self, docker: Option<&str>) -> Cloud {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fake-cloud"));
        command.arg("--kubeconfig").arg(self.kubeconfig()).args([
            "--backend",
            "kind",
            "--kind-cluster",
            &self.name,
        ]);
        command.arg("--join-logs").arg(self.logs()).env("RUST_LOG", "warn").stdin(Stdio::null());
        if let Some(docker) = docker {
            command.env("DOCKER_HOST", docker);
        }
        Cloud(command.spawn().unwrap())
    }

    fn claims(&self) -> Api<NodeClaim> {
        Api::all(self.client.clone())
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    async fn claim(&self, name: &str) {
        let claim = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {
                "name": name, "labels": {"bufconf.dev/pool": "test"},
                "finalizers": ["karpenter.sh/termination", "bufconf.dev/instance"],
            },
            "spec": {
                "nodeClassRef": {"group": "bufconf.dev", "kind": "FakeNodeClass", "name": "default"},
                "requirements": [
                    {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c-4x-amd64-linux", "c-4x-arm64-linux"]},
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                ],
                "startupTaints": [{"key": "example.com/starting", "effect": "NoSchedule"}],
            },
        });
        self.claims().create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    }

    /// What the controller does once a node is drained.
    async fn let_go(&self, name: &str) {
        self.claims().delete(name, &DeleteParams::default()).await.unwrap();
        let patch = json!({"metadata": {"finalizers": ["bufconf.dev/instance"]}});
        self.claims().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// The containers of claims, running or not.
    fn containers(&self) -> BTreeSet<String> {
        let filter = format!("label=io.x-k8s.kind.cluster={}", self.name);
        let listed = said(
            "docker",
            &[
                "ps",
                "-a",
                "--filter",
                &filter,
                "--filter",
                "label=bufconf.dev/claim",
                "--format",
                "{{.Names}}",
            ],
        );
        listed.unwrap().lines().map(str::to_owned).collect()
    }

    async fn is_ready(&self, name: &str) -> bool {
        let node = self.nodes().get_opt(name).await.unwrap();
        let conditions = node.and_then(|node| node.status).and_then(|status| status.conditions);
        conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        said(&self.kind, &["delete", "cluster", "--name", &self.name]).unwrap();
    }
}

/// A cloud process; it is killed in the end.
struct Cloud(Child);

impl Cloud {
    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// One cluster for all, since it takes a while to come up; the cases follow each other.
fn claims_become_nodes_whatever_happens() {
    runtime().block_on(async {
        let cluster = Cluster::create("bufconf-test").await;
        docker_is_away(&cluster).await;
        a_join_fails(&cluster).await;
        killed_between_any_two_steps(&cluster).await;
        a_container_is_killed(&cluster).await;
        assert_eq!(cluster.containers(), BTreeSet::new());
    });
}

/// The class says what is wrong, claims wait, and all comes right when Docker is there.
async fn docker_is_away(cluster: &Cluster) {
    let cloud = cluster.cloud(Some("unix:///nonexistent/docker.sock"));
    let classes: Api<FakeNodeClass> = Api::all(cluster.client.clone());
    eventually("the class is not Ready", async || {
        let class = classes.get("default").await.unwrap();
        let conditions = class.status.map(|status| status.conditions).unwrap_or_default();
        conditions
            .iter()
            .any(|c| c.status == "False" && c.reason == "BackendNotAvailable" && c.message.contains("Docker"))
    })
    .await;
    cloud.kill();
}

/// A join that fails is told on the claim, its log is kept, its container goes, and another one is tried.
async fn a_join_fails(cluster: &Cluster) {
    // kubeadm reads it first of all
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "kube-system");
    let needed = maps.get("kubeadm-config").await.unwrap();
    maps.delete("kubeadm-config", &DeleteParams::default()).await.unwrap();
    let cloud = cluster.cloud(None);
    cluster.claim("fails").await;
    eventually("the claim tells of the join", async || {
        let claim = cluster.claims().get("fails").await.unwrap();
        let conditions = claim.status.map(|status| status.conditions).unwrap_or_default();
        conditions.iter().any(|c| {
            c.type_ == "Launched" && c.reason == "JoinFailed" && c.message.contains("kubeadm-config")
        })
    })
    .await;
    let uid = cluster.claims().get("fails").await.unwrap().uid().unwrap();
    let owner = |attempt| Owner { cloud: "bufconf", claim: "fails", uid: &uid, attempt };
    let first = container_name(&cluster.name, owner(1));
    let log = std::fs::read_to_string(cluster.logs().join(format!("{first}.log"))).unwrap();
    assert!(log.lines().count() > 5, "the whole log: {log}");
    assert!(!cluster.containers().contains(&first), "its container is gone");
    let needed = ConfigMap {
        metadata: ObjectMeta { name: Some("kubeadm-config".to_owned()), ..ObjectMeta::default() },
        ..needed
    };
    maps.create(&PostParams::default(), &needed).await.unwrap();
    eventually("another container joins", async || cluster.is_ready("fails").await).await;
    let attempt = cluster.claims().get("fails").await.unwrap().annotations()[ATTEMPT].parse().unwrap();
    assert!(attempt > 1);
    assert_eq!(cluster.containers(), BTreeSet::from([container_name(&cluster.name, owner(attempt))]));

    let node = cluster.nodes().get("fails").await.unwrap();
    let allocatable = node.status.as_ref().unwrap().allocatable.clone().unwrap();
    let bought = cluster.claims().get("fails").await.unwrap().status.unwrap().allocatable;
    for resource in ["cpu", "memory", "pods"] {
        assert_eq!(allocatable[resource], bought[resource], "{resource}");
    }
    let spec = node.spec.as_ref().unwrap();
    let taints: BTreeSet<_> = spec.taints.iter().flatten().map(|taint| taint.key.as_str()).collect();
    assert!(
        taints.contains("karpenter.sh/unregistered") && taints.contains("example.com/starting"),
        "{taints:?}"
    );
    assert_eq!(spec.provider_id, Some(format!("fake://bufconf/{uid}")));
    assert_eq!(node.labels()["bufconf.dev/pool"], "test");

    cluster.let_go("fails").await;
    eventually("the claim goes", async || cluster.claims().get_opt("fails").await.unwrap().is_none()).await;
    assert_eq!(cluster.containers(), BTreeSet::new());
    assert!(cluster.nodes().get_opt("fails").await.unwrap().is_none());
    cloud.kill();
}

/// The cloud is killed at the first sight of each step; in the end there is one container, and one Node that is Ready.
async fn killed_between_any_two_steps(cluster: &Cluster) {
    cluster.claim("killed").await;
    let claim = async || cluster.claims().get("killed").await.unwrap();
    let inside = |test: &str| {
        cluster.containers().iter().any(|name| said("docker", &["exec", name, "bash", "-c", test]).is_ok())
    };
    let stages: [(&str, &dyn AsyncStage); 6] = [
        ("it is bought", &async || claim().await.status.is_some_and(|status| status.provider_id.is_some())),
        ("the attempt is counted", &async || claim().await.annotations().contains_key(ATTEMPT)),
        ("the container is there", &async || !cluster.containers().is_empty()),
        ("it has booted", &async || inside("test -S /run/containerd/containerd.sock")),
        ("the join has begun", &async || inside("test -d /run/bufconf")),
        ("the Node is there", &async || cluster.nodes().get_opt("killed").await.unwrap().is_some()),
    ];
    for (stage, seen) in stages {
        let cloud = cluster.cloud(None);
        let start = Instant::now();
        while !seen.holds().await {
            assert!(start.elapsed() < PATIENCE, "not in time: {stage}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        cloud.kill();
    }
    let cloud = cluster.cloud(None);
    eventually("the node is Ready", async || cluster.is_ready("killed").await).await;
    // a stray one: of an attempt that is not the last, as Docker makes it for a cloud that is killed before it hears
    let claim = cluster.claims().get("killed").await.unwrap();
    let stray = format!("{}-stray", cluster.name);
    let labels = [
        format!("io.x-k8s.kind.cluster={}", cluster.name),
        "bufconf.dev/cloud=bufconf".to_owned(),
        "bufconf.dev/claim=killed".to_owned(),
        format!("bufconf.dev/claim-uid={}", claim.uid().unwrap()),
        format!("{ATTEMPT}=0"),
    ];
    let labels = labels.iter().flat_map(|label| ["--label", label]);
    let image = image().unwrap();
    let words: Vec<&str> = ["create", "--name", &stray].into_iter().chain(labels).chain([&*image]).collect();
    said("docker", &words).unwrap();
    assert!(cluster.containers().contains(&stray));
    eventually("one container is left", async || cluster.containers().len() == 1).await;
    assert!(!cluster.containers().contains(&stray));
    cloud.kill();
    // killed while it goes, and what it left without a claim is swept
    let container = cluster.containers().pop_first().unwrap();
    cluster.claims().delete("killed", &DeleteParams::default()).await.unwrap();
    let patch = json!({"metadata": {"finalizers": null}});
    cluster.claims().patch("killed", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    let cloud = cluster.cloud(None);
    eventually("the orphan is swept", async || cluster.containers().is_empty()).await;
    eventually("its Node too", async || cluster.nodes().get_opt("killed").await.unwrap().is_none()).await;
    assert!(said("docker", &["inspect", &container]).is_err());
    cloud.kill();
}

/// A stage that can be looked for.
trait AsyncStage {
    fn holds(&self) -> std::pin::Pin<Box<dyn Future<Output = bool> + '_>>;
}

impl<F: AsyncFn() -> bool> AsyncStage for F {
    fn holds(&self) -> std::pin::Pin<Box<dyn Future<Output = bool> + '_>> {
        Box::pin(self())
    }
}

/// Somebody kills a container: the Node is seen to be silent, then it is deleted, so that whoever wants one asks again.
async fn a_container_is_killed(cluster: &Cluster) {
    let cloud = cluster.cloud(None);
    cluster.claim("lost").await;
    eventually("the node is Ready", async || cluster.is_ready("lost").await).await;
    let container = cluster.containers().pop_first().unwrap();
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "default");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lost"},
        "spec": {
            "nodeName": "lost", "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "c", "image": "registry.k8s.io/pause:3.10.2"}],
        },
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    eventually("the pod runs", async || {
        let pod = pods.get("lost").await.unwrap();
        pod.status.and_then(|status| status.phase).as_deref() == Some("Running")
    })
    .await;
    said("docker", &["rm", "-f", "-v", &container]).unwrap();
    eventually("its Node is deleted", async || cluster.nodes().get_opt("lost").await.unwrap().is_none())
        .await;
    assert_eq!(cluster.containers(), BTreeSet::new(), "an instance that is gone does not come again");
    cluster.let_go("lost").await;
    eventually("the claim goes", async || cluster.claims().get_opt("lost").await.unwrap().is_none()).await;
    cloud.kill();
}

/// Containers of two clusters, made as the cloud makes them but for what runs inside.
fn clouds_see_their_own_containers_only() {
    runtime().block_on(async {
        let image = image().unwrap();
        let (name, tag) = image.split_once(':').unwrap();
        let template = Template { image: image.clone(), network: "bridge".to_owned(), ..Template::default() };
        let run = std::process::id().to_string();
        let clusters = ["a", "b"].map(|cluster| format!("bufconf-{cluster}-{run}"));
        let mut running = Vec::new();
        for cluster in &clusters {
            let owner = Owner { cloud: "bufconf", claim: "web", uid: "12345678-1", attempt: 1 };
            let body = container(&template, cluster, owner);
            let sleeper = GenericImage::new(name, tag).with_entrypoint("sleep").with_cmd(["300"]);
            let sleeper =
                sleeper.with_container_name(container_name(cluster, owner)).with_labels(body.labels.unwrap());
            running.push(sleeper.start().await.unwrap());
        }
        let docker = Docker::connect().await.unwrap();
        let names = async |cluster: &str| -> Vec<String> {
            let machines = docker.machines(cluster, "bufconf", Some("12345678-1")).await.unwrap();
            machines.into_iter().map(|machine| machine.name).collect()
        };
        assert_eq!(names(&clusters[0]).await, [format!("{}-12345678-1", clusters[0])]);
        assert_eq!(docker.machines(&clusters[0], "other", None).await.unwrap(), []);
        docker.remove(&format!("{}-12345678-1", clusters[0])).await.unwrap();
        docker.remove(&format!("{}-12345678-1", clusters[0])).await.unwrap();
        assert_eq!(names(&clusters[0]).await, Vec::<String>::new());
        assert_eq!(names(&clusters[1]).await, [format!("{}-12345678-1", clusters[1])]);
        assert!(docker.template(&clusters[1]).await.is_err(), "it has no control plane");
    });
}
