//! Real control planes under a real supervisor: they start, work, and leave nothing behind, however they end.
//!
//! This executable is its own helper: by its first argument it is the test harness, the supervisor, the shim, the process
//! that owns a cluster, or a subject on it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test without libtest's `#[test]`

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, ExitCode},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams},
};
use libtest_mimic::{Arguments, Failed, Trial};
use rustix::{
    fs::{FlockOperation, flock},
    process::{Pid, Signal, kill_process},
};
use serde_json::json;
use similar_asserts::assert_eq;
use test_cluster::{
    ChildConfig, Error, ServeConfig,
    binaries::Sources,
    clusters::{self, Running, State},
    control::{ChildState, Request},
    existing::{self, Consent, MARKER},
    lease::{Isolation, Slots},
    owner, shim, supervisor,
};

/// Nothing here takes this long; a hang shall not last for ever.
const PATIENCE: Duration = Duration::from_mins(1);

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    match words[..] {
        ["cluster", "serve", dir] => report(supervisor::serve(Path::new(dir)).map(|_| ())),
        ["exec-shim", parent, "--", ..] => {
            report(shim::run(parent.parse().unwrap(), &arguments[3..]).map(|never| match never {}))
        }
        ["own", root] => own(Path::new(root)),
        ["subject", kubeconfig, port] => subject(kubeconfig, port.parse().unwrap()),
        ["lease", dir] => {
            let lease = slots(Path::new(dir)).acquire_blocking(Isolation::Own).unwrap();
            println!("{}", lease.slot());
            std::thread::sleep(PATIENCE);
            ExitCode::SUCCESS
        }
        ["guarded"] => {
            owner::die_with_parent().unwrap();
            println!("{}", std::process::id());
            std::thread::sleep(PATIENCE);
            ExitCode::SUCCESS
        }
        _ => libtest_mimic::run(&Arguments::from_args(), trials()).exit_code(),
    }
}

fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn()| {
        Trial::test(name, move || {
            test();
            Ok::<(), Failed>(())
        })
    };
    vec![
        trial("a_plane_works_and_ends_in_order", a_plane_works_and_ends_in_order),
        trial("a_killed_owner_ends_everything", a_killed_owner_ends_everything),
        trial("a_killed_supervisor_leaves_only_a_folder", a_killed_supervisor_leaves_only_a_folder),
        trial("a_failed_start_tells_everybody_why", a_failed_start_tells_everybody_why),
        trial("a_failed_start_without_owner_is_replaced", a_failed_start_without_owner_is_replaced),
        trial("a_start_that_loses_its_ports_is_repeated", a_start_that_loses_its_ports_is_repeated),
        trial("a_program_that_is_no_supervisor_is_reported", a_program_that_is_no_supervisor_is_reported),
        trial("a_cluster_can_be_stopped_while_it_starts", a_cluster_can_be_stopped_while_it_starts),
        trial("a_lease_ends_with_its_process", a_lease_ends_with_its_process),
        trial("an_orphan_is_not_started", an_orphan_is_not_started),
        trial("a_test_process_dies_with_its_runner", a_test_process_dies_with_its_runner),
    ]
}

fn report(result: Result<(), Error>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}: {:?}", std::error::Error::source(&error));
            ExitCode::FAILURE
        }
    }
}

/// Owns a cluster until it is killed.
fn own(root: &Path) -> ExitCode {
    let run = root.join("run");
    std::fs::create_dir(&run).unwrap();
    let config = ServeConfig { ends_with_owner: vec![run], ..config(Some(std::process::id())) };
    start(root, "owned", &config).unwrap();
    std::thread::sleep(PATIENCE);
    ExitCode::FAILURE
}

/// Answers every connection with 200, as a health endpoint does.
fn subject(kubeconfig: &str, port: u16) -> ExitCode {
    println!("serving {kubeconfig} for {}", std::env::var("WHO").unwrap());
    for stream in TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap().incoming() {
        let mut stream = stream.unwrap();
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    }
    ExitCode::SUCCESS
}

fn config(owner: Option<u32>) -> ServeConfig {
    let this = std::env::current_exe().unwrap().display().to_string();
    let child = ChildConfig {
        name: "subject".to_owned(),
        argv: vec![this, "subject".to_owned(), "${KUBECONFIG}".to_owned(), "${PORT:health}".to_owned()],
        env: BTreeMap::from([("WHO".to_owned(), "${PORT:health}".to_owned())]),
        health: Some("http://127.0.0.1:${PORT:health}/healthz".to_owned()),
    };
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.test.example.com"},
        "spec": {
            "group": "test.example.com",
            "scope": "Cluster",
            "names": {"kind": "Thing", "plural": "things", "singular": "thing"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    });
    ServeConfig { crds: vec![crd.to_string()], children: vec![child], owner, ..ServeConfig::default() }
}

fn start(root: &Path, name: &str, config: &ServeConfig) -> Result<Running, Error> {
    let progress = |line: &str| eprintln!("{line}");
    let this = std::env::current_exe().unwrap();
    clusters::start(root, name, config, &this, &Sources::from_env().unwrap(), &progress)
}

/// Waits for something that no handle can be waited for.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn alive(pid: u32) -> bool {
    // A zombie is not alive: its parent may be this test, which collects it later.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(')').unwrap().1.trim_start().starts_with('Z'))
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), signal).unwrap();
}

fn listens(port: u16) -> bool {
    TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).is_ok()
}

/// All processes of a cluster, the supervisor too.
fn pids(running: &Running) -> Vec<u32> {
    running.ready.pids.values().copied().chain([running.ready.supervisor]).collect()
}

fn expect_running(running: &Running) {
    assert_eq!(running.ready.pids.len(), 5);
    assert_eq!(running.ready.ports.len(), 5);
    assert!(pids(running).into_iter().all(alive));
    assert!(running.ready.ports.values().all(|&port| listens(port)), "{:?}", running.ready.ports);
}

/// No process and no port; the time that it took.
fn expect_ended(running: &Running) -> Duration {
    let start = Instant::now();
    eventually("all processes gone", || !pids(running).into_iter().any(alive));
    // The first thread of a killed process may be gone before its others are, and with them its sockets.
    eventually("all ports closed", || !running.ready.ports.values().any(|&port| listens(port)));
    start.elapsed()
}

fn entries(root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn a_plane_works_and_ends_in_order() {
    let root = tempfile::tempdir().unwrap();
    // Far longer than the address of a Unix socket may be.
    let root = root.path().join("a".repeat(100));
    let began = Instant::now();
    let running = start(&root, "one", &config(None)).unwrap();
    println!("up after {:?}, of which {:?} ms", began.elapsed(), running.ready.took);
    expect_running(&running);
    expect_private(&running.dir);
    let again = start(&root, "one", &ServeConfig::default()).unwrap();
    assert_eq!(again.ready, running.ready, "the second start finds the first");
    assert!(matches!(&clusters::list(&root).unwrap()[..], [(name, State::Ready(_))] if name == "one"));

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(use_plane(&running));

    crash_and_restart(&running);

    let began = Instant::now();
    assert!(clusters::stop(&root, "one").unwrap());
    println!("stopped after {:?}", began.elapsed());
    expect_ended(&running);
    assert_eq!(entries(&root), Vec::<String>::new());
    assert!(!clusters::stop(&root, "one").unwrap(), "there is nothing left to stop");
}

/// Nothing in the folder is for other users.
fn expect_private(dir: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", entry.path().display());
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            }
        }
    }
}

async fn use_plane(running: &Running) {
    let kubeconfig = Some(running.kubeconfig());
    let refusal = existing::connect(kubeconfig, Consent::Marker).await.err().unwrap();
    assert!(matches!(refusal, Error::NotDisposable { .. }), "{refusal:?}");
    let client = existing::connect(kubeconfig, Consent::Given).await.unwrap();
    let markers: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    let marker = json!({"metadata": {"name": MARKER}});
    markers.create(&PostParams::default(), &serde_json::from_value(marker).unwrap()).await.unwrap();
    existing::connect(kubeconfig, Consent::Marker).await.unwrap();
    create_thing(&client).await;
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({
        "metadata": {"name": "n1"},
        "status": {
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "10"},
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client, "default");
    let pod = json!({
        "metadata": {"name": "p1"},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let start = Instant::now();
    while pods.get("p1").await.unwrap().spec.unwrap().node_name.as_deref() != Some("n1") {
        assert!(start.elapsed() < PATIENCE, "the pod is not bound");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let audit = std::fs::read_to_string(running.audit_log()).unwrap();
    let writes = audit.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let mut verbs: BTreeMap<String, usize> = BTreeMap::new();
    for write in writes {
        let text =
            |pointer: &str| write.pointer(pointer).and_then(|value| value.as_str()).unwrap_or_default();
        assert_eq!(text("/level"), "Metadata");
        *verbs.entry(format!("{} {}", text("/verb"), text("/objectRef/resource"))).or_default() += 1;
    }
    assert_eq!(verbs.get("create things"), Some(&1));
    assert_eq!(verbs.get("create nodes"), Some(&1));
    assert!(verbs.keys().all(|verb| !verb.starts_with("get ") && !verb.starts_with("watch ")), "{verbs:?}");
}

/// The API server delays the first object of a young CRD by 2 s; a cluster that is up has none.
async fn create_thing(client: &Client) {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("test.example.com", "v1", "Thing"));
    let things: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let start = Instant::now();
    things.create(&PostParams::default(), &DynamicObject::new("t1", &kind)).await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(2), "took {:?}", start.elapsed());
}

fn crash_and_restart(running: &Running) {
    let died = |name: &str| running.request(&Request::Status).unwrap()[name].died.clone();
    let first = running.ready.pids["subject"];
    signal(first, Signal::KILL);
    eventually("the crash is on record", || died("subject").is_some());
    let death = died("subject").unwrap();
    assert_eq!((death.signal, death.asked), (Some(9), false));
    let serving = format!("serving {} for {}", running.kubeconfig().display(), running.ready.ports["health"]);
    assert_eq!(death.log, serving);
    assert!(died("kube-apiserver").is_none(), "the rest keeps running");

    let children = running.request(&Request::Restart("subject".to_owned())).unwrap();
    assert_eq!((children["subject"].starts, &children["subject"].died), (2, &None));
    assert_ne!(children["subject"].pid, first);
    assert!(listens(running.ready.ports["health"]), "restarted means healthy");

    let children = running.request(&Request::Kill("subject".to_owned())).unwrap();
    assert!(children["subject"].died.as_ref().unwrap().asked);
    assert!(!alive(children["subject"].pid));
    let error = running.request(&Request::Kill("sbject".to_owned())).unwrap_err();
    assert!(error.to_string().contains("no child named \"sbject\""), "{error}");
}

fn a_killed_owner_ends_everything() {
    let root = tempfile::tempdir().unwrap();
    let mut owner =
        Command::new(std::env::current_exe().unwrap()).arg("own").arg(root.path()).spawn().unwrap();
    let running = attach(root.path(), "owned", &mut owner);
    expect_running(&running);
    owner.kill().unwrap();
    owner.wait().unwrap();
    println!("all gone {:?} after the owner", expect_ended(&running));
    assert_eq!(entries(root.path()), Vec::<String>::new());
}

fn attach(root: &Path, name: &str, owner: &mut Child) -> Running {
    let dir = root.join(name);
    let mut found = None;
    eventually("the owner's cluster is up", || {
        assert!(owner.try_wait().unwrap().is_none(), "the owner could not start a cluster");
        if let State::Ready(ready) = clusters::status(root, name).unwrap() {
            found = Some(Running { dir: dir.clone(), ready: *ready });
        }
        found.is_some()
    });
    found.unwrap()
}

fn a_killed_supervisor_leaves_only_a_folder() {
    let root = tempfile::tempdir().unwrap();
    // Several at once, as test processes do: the first one starts it, the others find it.
    let config = config(Some(std::process::id()));
    let found = std::thread::scope(|scope| {
        let starts = [(); 3].map(|()| scope.spawn(|| start(root.path(), "killed", &config).unwrap()));
        starts.map(|start| start.join().unwrap())
    });
    let [running, others @ ..] = found;
    assert!(others.iter().all(|other| other.ready == running.ready));
    expect_running(&running);
    signal(running.ready.supervisor, Signal::KILL);
    println!("all gone {:?} after the supervisor", expect_ended(&running));
    assert!(matches!(clusters::status(root.path(), "killed").unwrap(), State::Stale));
    assert_eq!(clusters::sweep(root.path()).unwrap(), 1);
    assert_eq!(entries(root.path()), Vec::<String>::new());
}

/// Binaries that say the right versions. Then etcd fails with this message, and leaves a line in `etcd.count`; the others hang.
fn broken_binaries(folder: &Path, message: &str) -> Sources {
    use std::os::unix::fs::PermissionsExt;
    for name in ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
        let (version, action) = match name {
            "etcd" => ("etcd Version: 3.6.16", format!("echo >> $0.count; echo '{message}' >&2; exit 3")),
            _ => ("Kubernetes v1.36.3", "exec sleep 60".to_owned()),
        };
        let script = format!("#!/bin/sh\n[ \"$1\" = --version ] && echo '{version}' && exit\n{action}\n");
        let path = folder.join(name);
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    Sources { assets: Some(folder.to_owned()), ..Sources::from_env().unwrap() }
}

/// The reason, and how often the plane was started.
fn start_broken(root: &Path, owner: Option<u32>, message: &str) -> (String, usize) {
    let binaries = tempfile::tempdir().unwrap();
    let sources = broken_binaries(binaries.path(), message);
    let this = std::env::current_exe().unwrap();
    let progress = |line: &str| eprintln!("{line}");
    let error = clusters::start(root, "broken", &config(owner), &this, &sources, &progress).unwrap_err();
    let count = std::fs::read_to_string(binaries.path().join("etcd.count")).unwrap_or_default();
    (error.to_string(), count.len())
}

fn a_start_that_loses_its_ports_is_repeated() {
    let root = tempfile::tempdir().unwrap();
    let (reason, starts) = start_broken(root.path(), None, "listen: bind: address already in use");
    assert!(reason.contains("address already in use"), "{reason}");
    assert_eq!(starts, 3);
    assert_eq!(clusters::sweep(root.path()).unwrap(), 1);
}

fn a_failed_start_tells_everybody_why() {
    let root = tempfile::tempdir().unwrap();
    let owner = std::process::id();
    let (first, starts) = start_broken(root.path(), Some(owner), "broken");
    assert_eq!(starts, 1);
    assert!(first.contains("exit code 3") && first.contains("broken"), "{first}");
    // The second does not try again: it hears the same reason from the same supervisor.
    let pid = std::fs::read_to_string(root.path().join("broken/pid")).unwrap();
    assert_eq!(start_broken(root.path(), Some(owner), "broken"), (first, 0));
    assert_eq!(std::fs::read_to_string(root.path().join("broken/pid")).unwrap(), pid);
    assert!(clusters::stop(root.path(), "broken").unwrap());
    assert_eq!(entries(root.path()), Vec::<String>::new());
}

fn a_failed_start_without_owner_is_replaced() {
    let root = tempfile::tempdir().unwrap();
    start_broken(root.path(), None, "broken");
    let pid = std::fs::read_to_string(root.path().join("broken/pid")).unwrap();
    start_broken(root.path(), None, "broken");
    assert_ne!(std::fs::read_to_string(root.path().join("broken/pid")).unwrap(), pid, "tried again");
    // The same when the one before is not quite out yet.
    let lock = std::fs::File::open(root.path().join("broken/lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let (_, starts) = std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            drop(lock);
        });
        start_broken(root.path(), None, "broken")
    });
    assert_eq!(starts, 1);
    assert_eq!(clusters::sweep(root.path()).unwrap(), 1);
    assert_eq!(entries(root.path()), Vec::<String>::new());
}

fn a_program_that_is_no_supervisor_is_reported() {
    let root = tempfile::tempdir().unwrap();
    let binaries = tempfile::tempdir().unwrap();
    let sources = broken_binaries(binaries.path(), "");
    let progress = |line: &str| eprintln!("{line}");
    let error =
        clusters::start(root.path(), "none", &config(None), Path::new("/bin/false"), &sources, &progress)
            .unwrap_err()
            .to_string();
    assert!(error.contains("/bin/false does not serve"), "{error}");
}

fn a_cluster_can_be_stopped_while_it_starts() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().to_owned();
    let mut owner =
        Command::new(std::env::current_exe().unwrap()).arg("own").arg(root.path()).spawn().unwrap();
    let children = path.join("owned/children.json");
    eventually("it is starting", || {
        matches!(clusters::status(&path, "owned").unwrap(), State::Starting) && children.exists()
    });
    let children: BTreeMap<String, ChildState> =
        serde_json::from_str(&std::fs::read_to_string(children).unwrap()).unwrap();
    // Else it would start the next one.
    signal(owner.id(), Signal::STOP);
    assert!(clusters::stop(root.path(), "owned").unwrap());
    assert!(!children.values().any(|child| alive(child.pid)));
    assert_eq!(entries(root.path()), ["run"]);
    owner.kill().unwrap();
    owner.wait().unwrap();
}

fn slots(dir: &Path) -> Slots {
    Slots::new(dir, 2.try_into().unwrap()).unwrap()
}

fn a_lease_ends_with_its_process() {
    let dir = tempfile::tempdir().unwrap();
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .arg("lease")
        .arg(dir.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(first_line(&mut holder), "1");
    let slots = slots(dir.path());
    let waiter = std::thread::spawn(move || slots.acquire_blocking(Isolation::Quiet).unwrap().slot());
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!(waiter.join().unwrap(), 1);
}

fn first_line(process: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    line.trim().to_owned()
}

fn an_orphan_is_not_started() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["exec-shim", "1", "--", "echo", "started"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["exec-shim", &std::process::id().to_string(), "--", "echo", "started"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "started\n");
}

fn a_test_process_dies_with_its_runner() {
    // A shell stands for the runner: it starts the test process and says its number.
    let mut runner = Command::new("sh")
        .args(["-c", "\"$0\" guarded & wait"])
        .arg(std::env::current_exe().unwrap())
        .env("NEXTEST_RUN_ID", "some-run")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let guarded = first_line(&mut runner).parse().unwrap();
    assert!(alive(guarded));
    runner.kill().unwrap();
    runner.wait().unwrap();
    eventually("the test process is gone", || !alive(guarded));
}
