//! kind clusters as the command line makes, adopts and removes them.
//!
//! Where Docker, the command `kind` or the node image is missing, the tests are listed as ignored and the reason is told.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test without libtest's `#[test]`"
)]

mod support;

use std::{
    collections::BTreeSet,
    path::Path,
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams, PostParams},
    discovery,
};
use libtest_mimic::{Arguments, Failed, Trial};
use rustix::process::Signal;
use serde_json::json;
use support::{PATIENCE, Said, World};
use test_cluster::{
    binaries::{self, Sources},
    control::{self, Request},
    kind,
};

fn main() -> ExitCode {
    let missing = missing();
    if let Some(missing) = &missing {
        eprintln!("could not run: {missing}");
    }
    let trial = |name: &str, test: fn()| {
        Trial::test(name, move || {
            test();
            Ok::<(), Failed>(())
        })
    };
    let trials = vec![
        trial("a_cluster_is_made_adopted_and_removed", a_cluster_is_made_adopted_and_removed)
            .with_ignored_flag(missing.is_some()),
        trial("nodes_come_though_controller_and_cloud_are_killed", nodes_come_though_all_are_killed)
            .with_ignored_flag(missing.is_some()),
        trial("without_docker_a_run_fails_at_once", without_docker_a_run_fails_at_once),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn missing() -> Option<String> {
    let sources = Sources::from_env().unwrap();
    if let Err(why) = kind::docker_version() {
        return Some(why);
    }
    if kind::program(&sources.cache).is_none() {
        return Some("the command kind is missing".to_owned());
    }
    let version = binaries::release(binaries::DEFAULT_MINOR).unwrap().kubernetes;
    let image = kind::choose_image(None, version);
    (!kind::has_image(&image)).then(|| format!("Docker has no image {image}; see ci/kind-node"))
}

fn bufconf(world: &World, arguments: &[&str]) -> Said {
    world.bufconf(arguments).output().unwrap().into()
}

fn clusters() -> Vec<String> {
    kind::clusters(&Sources::from_env().unwrap().cache)
}

fn a_cluster_is_made_adopted_and_removed() {
    let (owner, guest) = (World::new(), World::new());
    let name = format!("bufconf-cli-{}", std::process::id());
    let up = ["cluster", "up", "--cluster", "kind", "--name", &name];
    let said = bufconf(&owner, &[&up[..], &["--with", "reference"]].concat()).expect(0);
    let kubeconfig = said.stdout.lines().last().unwrap().to_owned();
    assert!(Path::new(&kubeconfig).exists(), "{said:?}");
    assert!(clusters().contains(&name));
    let status = bufconf(&owner, &["cluster", "status"]).expect(0).stdout;
    assert!(status.contains("cloud") && status.contains("controller"), "{status}");
    let doctor = bufconf(&owner, &["doctor", "--cluster", "kind"]).expect(0).stdout;
    assert!(!doctor.contains(&format!("{name} is not known here")), "{doctor}");

    // Somebody else uses it, and leaves it where it is.
    let said = bufconf(&guest, &up).expect(0);
    assert!(said.stderr.contains("was there before; it is used, and stays"), "{said:?}");
    let said = bufconf(&guest, &["cluster", "up", "--cluster", "embedded", "--name", &name]).expect(2);
    assert!(said.stderr.contains("is up already and of another kind"), "{said:?}");
    let said = bufconf(&guest, &["cluster", "down", "--name", &name]).expect(0);
    assert!(said.stderr.contains("was there before, and stays"), "{said:?}");
    guest.expect_no_process();
    assert!(clusters().contains(&name));

    // The supervisor is killed: its children go at once, the containers with the next command.
    owner.process("the supervisor", support::Process::is_supervisor).kill(Signal::KILL);
    owner.expect_no_process();
    let doctor = bufconf(&owner, &["doctor", "--cluster", "kind"]).expect(0).stdout;
    assert!(doctor.contains(&format!("bufconf cluster down --name {name}")), "{doctor}");
    bufconf(&owner, &["cluster", "down", "--name", &name]).expect(0);
    assert!(!clusters().contains(&name));
    assert!(owner.folders("clusters").is_empty());
}

/// Controller and cloud are killed again and again while three nodes join; then somebody kills a container.
fn nodes_come_though_all_are_killed() {
    let world = World::new();
    let name = format!("bufconf-kills-{}", std::process::id());
    let up = ["cluster", "up", "--cluster", "kind", "--name", &name, "--with", "reference"];
    let kubeconfig = bufconf(&world, &up).expect(0).stdout.lines().last().unwrap().to_owned();
    let plane = world.path("bufconf/clusters").join(&name);
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let client = buffer_client::connect(Some(Path::new(&kubeconfig))).await.unwrap();
        want_three(&client).await;
        for round in 0..8_u64 {
            std::thread::sleep(Duration::from_millis(300 * round));
            for process in ["cloud", "controller"] {
                control::request(&plane, &Request::Kill(process.to_owned())).unwrap();
            }
            for process in ["cloud", "controller"] {
                control::request(&plane, &Request::Restart(process.to_owned())).unwrap();
            }
        }
        let nodes: Api<Node> = Api::all(client.clone());
        let mine = ListParams::default().labels("karpenter.sh/nodepool=mine");
        let ready = async || {
            let nodes = nodes.list(&mine).await.unwrap();
            let is_ready = |node: &Node| {
                let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
                conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
            };
            let names: BTreeSet<String> =
                nodes.iter().filter(|node| is_ready(node)).map(ResourceExt::name_any).collect();
            (names.len() == 3).then_some(names)
        };
        let first = eventually_async("three nodes are Ready", &ready).await;
        // one for each claim: what Docker made for a cloud that was killed meanwhile is swept
        let one_each = async || (containers(&name).len() == 3).then_some(());
        eventually_async("one container for each claim", &one_each).await;

        let victim = containers(&name).pop_first().unwrap();
        let killed = Command::new("docker").args(["rm", "-f", "-v", &victim]).output().unwrap();
        assert!(killed.status.success(), "{killed:?}");
        let refilled = async || ready().await.filter(|names| *names != first);
        eventually_async("the buffer is refilled", &refilled).await;
        eventually_async("one container for each claim", &one_each).await;
    });
    bufconf(&world, &["cluster", "down", "--name", &name]).expect(0);
    assert_eq!(containers(&name), BTreeSet::new());
}

async fn eventually_async<T>(what: &str, look: &impl AsyncFn() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The containers of a kind cluster that stand for claims.
fn containers(cluster: &str) -> BTreeSet<String> {
    let cluster = format!("label=io.x-k8s.kind.cluster={cluster}");
    let arguments =
        ["ps", "-a", "--filter", &cluster, "--filter", "label=bufconf.dev/claim", "--format", "{{.Names}}"];
    let output = Command::new("docker").args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// A pool, and a buffer of three nodes.
async fn want_three(client: &Client) {
    let manifests = [
        json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "mine"},
            "spec": {
                "template": {"spec": {
                    "nodeClassRef": {"group": "bufconf.dev", "kind": "FakeNodeClass", "name": "default"},
                    "requirements": [
                        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c-2x-amd64-linux", "c-2x-arm64-linux"]},
                    ],
                }},
                "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s"},
            },
        }),
        json!({
            "apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "web", "namespace": "default"},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{
                "name": "c", "image": "registry.k8s.io/pause:3.10.2", "resources": {"requests": {"cpu": "1"}},
            }]}},
        }),
        json!({
            "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"podTemplateRef": {"name": "web"}, "replicas": 3},
        }),
    ];
    for manifest in manifests {
        let object: DynamicObject = serde_json::from_value(manifest).unwrap();
        let kind = object.types.as_ref().unwrap().try_into().unwrap();
        let (resource, _) = discovery::pinned_kind(client, &kind).await.unwrap();
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        api.create(&PostParams::default(), &object).await.unwrap();
    }
}

fn without_docker_a_run_fails_at_once() {
    let world = World::new();
    let mut command = world.bufconf(["run", "--cluster", "kind", "api-crud"]);
    let said: Said = command.env("DOCKER_HOST", "unix:///nonexistent/docker.sock").output().unwrap().into();
    assert!(said.stderr.contains("no Docker daemon answers"), "{said:?}");
    said.expect(5);
    let mut command = world.bufconf(["doctor", "--cluster", "kind"]);
    let said: Said = command.env("DOCKER_HOST", "unix:///nonexistent/docker.sock").output().unwrap().into();
    assert!(said.stdout.contains("problem  no Docker daemon answers"), "{said:?}");
    said.expect(5);
}
