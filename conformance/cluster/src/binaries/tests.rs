//! Where binaries come from: fake ones, a fake publisher, a fake Go.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    sync::Mutex,
    time::{Duration, Instant},
};

use similar_asserts::assert_eq;
use tempfile::TempDir;

use super::*;

const KUBERNETES: &str = "Kubernetes v1.36.3";
const ETCD: &str = "etcd Version: 3.6.16";

struct World {
    dir: TempDir,
    sources: Sources,
    lines: Mutex<Vec<String>>,
}

impl World {
    /// No folder of assets, an empty cache, no network, no Go.
    fn empty() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sources = Sources {
            assets: None,
            cache: dir.path().join("cache"),
            kubernetes_url: "http://127.0.0.1:1".to_owned(),
            etcd_url: "http://127.0.0.1:1".to_owned(),
            go: dir.path().join("go"),
        };
        Self { dir, sources, lines: Mutex::default() }
    }

    fn cache(&self) -> PathBuf {
        self.sources.cache.join("control-plane/1.36.3")
    }

    fn prepare(&self) -> Result<Binaries, Error> {
        let progress = |line: &str| self.lines.lock().unwrap().push(line.to_owned());
        prepare("1.36", &self.sources, &progress)
    }

    fn refusal(&self) -> String {
        self.prepare().unwrap_err().to_string()
    }

    /// A Go that "builds" binaries which say `version`, and notes each call.
    fn go(&self, toolchain: &str, version: &str) {
        let log = self.dir.path().join("go.log");
        let script = format!(
            r#"[ "$1" = version ] && echo "go version {toolchain} linux/amd64" && exit
echo "$@" >> {log}
while [ "$1" != -o ]; do shift; done
out=$2; shift 2
fake() {{ printf '#!/bin/sh\necho "%s"\n' "$2" > "$1"; chmod +x "$1"; }}
for package in "$@"; do case $package in
    */etcd/*) fake "$out" "{ETCD}";;
    *) fake "$out/${{package##*/}}" "{version}";;
esac; done"#,
            log = log.display()
        );
        fake(&self.sources.go, &script);
    }

    fn go_calls(&self) -> Vec<String> {
        let log = fs::read_to_string(self.dir.path().join("go.log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }
}

fn fake(path: &Path, body: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn says(folder: &Path, name: &str, version: &str) {
    fake(&folder.join(name), &format!("echo '{version}'"));
}

fn fill(folder: &Path) {
    says(folder, "etcd", ETCD);
    for name in ["kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
        says(folder, name, KUBERNETES);
    }
}

/// A publisher on loopback; ends with the test process.
fn publisher(files: BTreeMap<String, Vec<u8>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let request = lines.next().unwrap_or_default();
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            let path = request.split(' ').nth(1).unwrap_or_default();
            let (status, body) = files.get(path).map_or(("404 Not Found", &[][..]), |body| ("200 OK", body));
            let head =
                format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        }
    });
    url
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    format!("{:x}", sha2::Sha256::digest(bytes))
}

/// What the publishers have: good files, each with its digest.
fn published() -> BTreeMap<String, Vec<u8>> {
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let mut files = BTreeMap::new();
    for name in ["kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
        let body = format!("#!/bin/sh\necho '{KUBERNETES}'\n").into_bytes();
        let path = format!("/v1.36.3/bin/linux/{arch}/{name}");
        files.insert(format!("{path}.sha256"), sha256(&body).into_bytes());
        files.insert(path, body);
    }
    let work = tempfile::tempdir().unwrap();
    let folder = format!("etcd-v3.6.16-linux-{arch}");
    says(&work.path().join(&folder), "etcd", ETCD);
    let archive = format!("{folder}.tar.gz");
    let packed =
        std::process::Command::new("tar").args(["-czf", &archive, &folder]).current_dir(work.path()).status();
    assert!(packed.unwrap().success());
    let body = fs::read(work.path().join(&archive)).unwrap();
    files.insert("/v3.6.16/SHA256SUMS".to_owned(), format!("{}  {archive}\n", sha256(&body)).into_bytes());
    files.insert(format!("/v3.6.16/{archive}"), body);
    files
}

#[test]
fn each_binary_is_found_by_itself_and_assets_come_first() {
    let mut world = World::empty();
    let assets = world.dir.path().join("assets");
    says(&assets, "etcd", ETCD);
    says(&assets, "kube-apiserver", KUBERNETES);
    fill(&world.cache());
    world.sources.assets = Some(assets.clone());
    let found = world.prepare().unwrap();
    let cache = world.cache();
    assert_eq!(
        found,
        Binaries {
            etcd: assets.join("etcd"),
            kube_apiserver: assets.join("kube-apiserver"),
            kube_controller_manager: cache.join("kube-controller-manager"),
            kube_scheduler: cache.join("kube-scheduler"),
        }
    );
    assert_eq!(*world.lines.lock().unwrap(), Vec::<String>::new());
}

#[test]
fn a_binary_of_another_minor_is_passed_over() {
    let mut world = World::empty();
    let assets = world.dir.path().join("assets");
    fill(&assets);
    says(&assets, "kube-apiserver", "Kubernetes v1.35.6");
    says(&assets, "etcd", "etcd Version: 3.5.21");
    world.sources.assets = Some(assets.clone());
    let refusal = world.refusal();
    assert!(refusal.starts_with("no etcd, kube-apiserver: "), "{refusal}");
    assert!(refusal.contains("etcd is 3.5.21, not 3.6, kube-apiserver is 1.35.6, not 1.36"), "{refusal}");
    fill(&world.cache());
    let found = world.prepare().unwrap();
    assert_eq!(found.kube_apiserver, world.cache().join("kube-apiserver"));
    assert_eq!(found.kube_scheduler, assets.join("kube-scheduler"));
}

#[test]
fn with_neither_network_nor_go_the_error_says_so_soon() {
    let world = World::empty();
    let start = Instant::now();
    let refusal = world.refusal();
    assert!(start.elapsed() < Duration::from_secs(10));
    for part in [
        "no etcd, kube-apiserver, kube-controller-manager, kube-scheduler: ",
        "$KUBEBUILDER_ASSETS is not set",
        "kube-scheduler is not there",
        "downloading etcd: http://127.0.0.1:1/v3.6.16/SHA256SUMS: ",
        "downloading kube-apiserver: ",
        "no Go to build from source (Go 1.26.0 or newer is needed)",
    ] {
        assert!(refusal.contains(part), "\"{part}\" is not in: {refusal}");
    }
    assert_eq!(refusal.matches("is not there").count(), 4, "nothing is said twice: {refusal}");
}

#[test]
fn downloads_are_kept_when_their_digest_is_the_published_one() {
    let mut world = World::empty();
    let url = publisher(published());
    (world.sources.kubernetes_url, world.sources.etcd_url) = (url.clone(), url);
    let found = world.prepare().unwrap();
    assert_eq!(found.etcd, world.cache().join("etcd"));
    let lines = world.lines.lock().unwrap().clone();
    assert_eq!(lines.len(), 4);
    let line = format!("downloading kube-apiserver 1.36.3 from {}", world.sources.kubernetes_url);
    assert!(lines.contains(&line), "{lines:?}");
    let mut left: Vec<_> =
        fs::read_dir(world.cache()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "lock"]);
    // The second time without a network.
    world.sources.kubernetes_url = "http://127.0.0.1:1".to_owned();
    assert_eq!(world.prepare().unwrap(), found);
}

#[test]
fn a_download_with_another_digest_is_not_used() {
    let mut world = World::empty();
    let mut files = published();
    for (path, body) in &mut files {
        if path.ends_with("kube-apiserver") || path.ends_with(".tar.gz") {
            body.push(b'\n');
        }
    }
    let url = publisher(files);
    (world.sources.kubernetes_url, world.sources.etcd_url) = (url.clone(), url);
    let refusal = world.refusal();
    assert_eq!(refusal.matches("SHA-256 is").count(), 2, "{refusal}");
    assert!(!world.cache().join("kube-apiserver").exists() && !world.cache().join("etcd").exists());
}

#[test]
fn what_is_missing_is_built_once_for_all_who_wait() {
    let world = World::empty();
    says(&world.cache(), "kube-scheduler", KUBERNETES);
    world.go("go1.26.8", KUBERNETES);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| world.prepare().unwrap());
        }
    });
    let calls = world.go_calls();
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert!(calls[0].ends_with("/staging/etcd go.etcd.io/etcd/server/v3"), "{calls:?}");
    let packages = "k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kube-controller-manager";
    assert!(calls[1].ends_with(&format!("/staging {packages}")), "{calls:?}");
    assert!(calls[1].contains("gitVersion=v1.36.3"), "{calls:?}");
    let lines = world.lines.lock().unwrap();
    let wanted =
        "building kube-apiserver, kube-controller-manager from source with go1.26.8 (about 7 minutes)";
    assert_eq!(lines.iter().filter(|line| *line == wanted).count(), 1, "{lines:?}");
}

#[test]
fn a_build_of_the_wrong_version_is_not_used() {
    let world = World::empty();
    world.go("go1.26.8", "Kubernetes v0.0.0-master");
    let refusal = world.refusal();
    assert!(refusal.contains("from the build: kube-apiserver is 0.0.0-master, not 1.36"), "{refusal}");
}

#[test]
fn an_old_go_is_refused() {
    let world = World::empty();
    world.go("go1.19.8", KUBERNETES);
    let refusal = world.refusal();
    assert!(
        refusal.contains("go1.19.8 is too old to build this (Go 1.26.0 or newer is needed)"),
        "{refusal}"
    );
    assert_eq!(world.go_calls(), Vec::<String>::new());
}
