//! Several reference controllers on one real control plane: one at a time writes, whatever is done to it.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests; clippy exempts only test functions"
)]

mod support;

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Child,
    time::{Duration, Instant},
};

use buffer_api::CapacityBuffer;
use kube::{Api, api::PostParams};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use similar_asserts::assert_eq;

use support::{PATIENCE, World, eventually, workspace};

/// What a leader's death may cost.
const TAKE_OVER: Duration = Duration::from_secs(15);
/// How long a lease is by default: who takes over sooner has been given it.
const LEASE: Duration = Duration::from_secs(10);

#[tokio::test]
async fn one_writes_at_a_time() {
    let world = World::new();
    let kubeconfig = up(&world);
    let client = buffer_client::connect(Some(&kubeconfig)).await.unwrap();
    let buffers = Buffers(Api::namespaced(client, "default"));

    let mut one = Controller::start(&world, &kubeconfig, "one");
    buffers.create("b0").await;
    buffers.resolved("b0").await;
    assert!(one.leads());
    let mut two = Controller::start(&world, &kubeconfig, "two");
    two.ready();
    assert!(!two.leads());
    buffers.some("b1").await;

    one.signal(Signal::KILL);
    let killed = Instant::now();
    assert_eq!(world.ended(&mut one.child), None);
    buffers.create("b2").await;
    buffers.resolved("b2").await;
    let took = killed.elapsed();
    assert!(took <= TAKE_OVER, "{took:?} after a kill");
    assert!(two.leads());

    let mut three = Controller::start(&world, &kubeconfig, "three");
    three.ready();
    buffers.some("c2").await;
    two.signal(Signal::TERM);
    assert_eq!(world.ended(&mut two.child), Some(0));
    let ended = Instant::now();
    buffers.create("b3").await;
    buffers.resolved("b3").await;
    let took = ended.elapsed();
    assert!(took < LEASE / 2, "{took:?} after a good-bye");
    assert!(three.leads());

    let mut four = Controller::start(&world, &kubeconfig, "four");
    four.ready();
    buffers.some("c3").await;
    // some of it is on its way when it stops
    for number in 0..50 {
        buffers.create(&format!("c{number}")).await;
    }
    three.signal(Signal::STOP);
    let stopped = Instant::now();
    buffers.create("b4").await;
    buffers.resolved("b4").await;
    let took = stopped.elapsed();
    assert!(took <= TAKE_OVER, "{took:?} after a stop");
    three.signal(Signal::CONT);
    // 5: how `bufconf controller` ends when it is not asked to
    assert_eq!(world.ended(&mut three.child), Some(5), "it has found that the lease is lost");
    assert!(world.log().contains("this process is not the leader any more"), "{}", world.log());
    for number in 0..50 {
        buffers.resolved(&format!("c{number}")).await;
    }
    buffers.create("b5").await;
    buffers.resolved("b5").await;
    assert!(four.leads());
    four.signal(Signal::TERM);
    assert_eq!(world.ended(&mut four.child), Some(0));

    assert_eq!(writers(&kubeconfig), ["one", "two", "three", "four"]);
}

/// A control plane with our kinds and nobody on it.
fn up(world: &World) -> PathBuf {
    let reference = fs::read_to_string(workspace().join("ci/implementations/reference.yaml")).unwrap();
    let mut nobody: Value = serde_yaml::from_str(&reference).unwrap();
    nobody["processes"] = json!([]);
    nobody["crds"] = json!([workspace().join("controller/chart/crds")]);
    let file = world.file("nobody.yaml", serde_yaml::to_string(&nobody).unwrap());
    let file = file.display().to_string();
    let said = world.bufconf(["cluster", "up", "--name", "leaders", "--with", &file]).output().unwrap();
    support::Said::from(said).expect(0).stdout.lines().last().unwrap().into()
}

/// Who has written something else than a lease, in order, each time that it was another than before.
fn writers(kubeconfig: &Path) -> Vec<String> {
    let log = fs::read_to_string(kubeconfig.with_file_name("audit.log")).unwrap();
    let mut writes: Vec<(String, String)> = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|event| event["objectRef"]["resource"] != "leases")
        .filter_map(|event| {
            // buffer-controller/VERSION (NAME_UUID)
            let agent = event["userAgent"].as_str()?.strip_prefix("buffer-controller/")?;
            let name = agent.split_once('(')?.1.split_once('_')?.0;
            Some((event["requestReceivedTimestamp"].as_str()?.to_owned(), name.to_owned()))
        })
        .collect();
    writes.sort();
    let mut names: Vec<String> = writes.into_iter().map(|(_, name)| name).collect();
    names.dedup();
    names
}

struct Buffers(Api<CapacityBuffer>);

impl Buffers {
    /// A buffer that a controller has something to say of: that its template is missing.
    async fn create(&self, name: &str) {
        let buffer = json!({
            "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "metadata": {"name": name},
            "spec": {"podTemplateRef": {"name": "missing"}, "replicas": 1},
        });
        self.0.create(&PostParams::default(), &serde_json::from_value(buffer).unwrap()).await.unwrap();
    }

    /// Several, one after the other: two that write would take turns.
    async fn some(&self, name: &str) {
        for number in 0..10 {
            let name = format!("{name}-{number}");
            self.create(&name).await;
            self.resolved(&name).await;
        }
    }

    async fn resolved(&self, name: &str) {
        let start = Instant::now();
        loop {
            let buffer = serde_json::to_value(self.0.get(name).await.unwrap()).unwrap();
            if buffer["status"]["conditions"].as_array().is_some_and(|conditions| !conditions.is_empty()) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "nobody says anything of {name}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

struct Controller {
    child: Child,
    port: u16,
}

impl Controller {
    fn start(world: &World, kubeconfig: &Path, name: &str) -> Self {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let mut command = world.bufconf(["controller", "--feature-gates=CapacityBuffer=true"]);
        command
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg(format!("--leader-elect-identity={name}"))
            .arg(format!("--admin-port={port}"));
        Self { child: world.start(command), port }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// What its admin port says; `None` while it is not open.
    fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        Some(answer)
    }

    /// Waits until its lists are complete.
    fn ready(&self) {
        eventually("a controller that is ready", || {
            self.get("/readyz").filter(|answer| answer.starts_with("HTTP/1.1 200"))
        });
    }

    fn leads(&self) -> bool {
        let metrics = self.get("/metrics").unwrap();
        let value = metrics.lines().find_map(|line| line.strip_prefix("buffer_controller_is_leader "));
        value.unwrap() == "1"
    }
}
