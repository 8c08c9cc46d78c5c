//! A kind cluster as a plane: one control-plane node in a container; the nodes are the cloud's business.
//!
//! The command `kind` makes it and takes it away, with all containers that carry its label. A cluster of that name that is
//! there already is adopted: used, and left where it is.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde::{Deserialize, Serialize};

use crate::{
    Error,
    files::{private_dir, publish_json, read_json, tail, write_private},
    process, ready,
};

/// The published node image that goes with kind v0.33.0: its default, by the digest that its release names.
pub const PUBLISHED: &str =
    "kindest/node:v1.37.0@sha256:a1ed56cfb0e7b93589bdf97c8cd566405a265939e3620fc4f5de89adff580ae5";
/// The image that `ci/kind-node/build` makes, without its version.
const BUILT: &str = "bufconf/kind-node";
/// Label of that image.
const BUILT_LABEL: &str = "bufconf.dev/inputs";
/// inotify instances of a control plane and of each node.
const INOTIFY: (u64, u64) = (26, 13);
/// What others on the machine may use of them.
const INOTIFY_OF_OTHERS: u64 = 64;
/// Memory of a control plane with what runs beside it, and of each node, MiB.
const MEMORY: (u64, u64) = (1536, 100);
/// How long a command may take that asks, or takes a cluster away.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked whether a cluster is still there, and how often it must be missed.
const LOOK: (Duration, u32) = (Duration::from_secs(3), 3);
/// Nodes for each core: they join at the same time.
const NODES_PER_CORE: u64 = 8;

/// A kind cluster that shall be there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KindConfig {
    /// Its name.
    pub name: String,
    /// Use the one that is there, and leave it in the end; else it is an error that there is one.
    pub adopt: bool,
    /// Node image; the one that fits when absent.
    pub image: Option<String>,
    /// Folder for the logs of nodes that could not join; in the plane's own when absent.
    pub join_logs: Option<PathBuf>,
}

/// What a supervisor needs to make one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Tools {
    /// The command `kind`.
    kind: PathBuf,
    /// The node image.
    image: String,
    /// It was built here: with the CNI in it, without kindnet, kube-proxy and CoreDNS.
    built: bool,
}

/// What is recorded of a cluster in the plane's folder before anything is made.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Made {
    kind: PathBuf,
    name: String,
    adopted: bool,
}

const RECORD: &str = "kind.json";

/// The command `kind`: on the PATH, else in the cache, where `ci/kind-node/build` leaves it.
#[must_use]
pub fn program(cache: &Path) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|folder| folder.join("kind")).chain([cache.join("bin/kind")]).find(|file| {
        use std::os::unix::fs::PermissionsExt;
        fs::metadata(file).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    })
}

/// Whether Docker has an image, and whether that one was built here.
fn image(name: &str) -> Option<bool> {
    let format = format!("{{{{index .Config.Labels \"{BUILT_LABEL}\"}}}}");
    let label = ask("docker", &["image", "inspect", "--format", &format, name]).ok()?;
    Some(!label.trim().is_empty() && label.trim() != "<no value>")
}

/// Whether Docker has an image.
#[must_use]
pub fn has_image(name: &str) -> bool {
    image(name).is_some()
}

/// The names of all kind clusters on this machine; none where `kind` or Docker is missing.
#[must_use]
pub fn clusters(cache: &Path) -> Vec<String> {
    let Some(program) = program(cache) else { return Vec::new() };
    let listed = ask(&program.display().to_string(), &["get", "clusters"]).unwrap_or_default();
    listed.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

/// The names of the kind clusters that are on record in the folders of planes, anywhere below `roots`.
pub fn owned(roots: &[PathBuf]) -> Result<BTreeSet<String>, Error> {
    /// A run's folder holds one of planes, which holds those of the planes.
    const DEPTH: usize = 3;
    let mut names = BTreeSet::new();
    let mut folders: Vec<(PathBuf, usize)> = roots.iter().map(|root| (root.clone(), 0)).collect();
    while let Some((folder, depth)) = folders.pop() {
        if let Some(made) = read_json::<Made>(&folder.join(RECORD))? {
            names.insert(made.name);
        }
        // one that is not there, or going, holds no record
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let inner = entries.filter_map(Result::ok).map(|entry| entry.path()).filter(|path| path.is_dir());
        if depth < DEPTH {
            folders.extend(inner.map(|path| (path, depth + 1)));
        }
    }
    Ok(names)
}

/// What a command prints, or why it fails. A daemon may accept and never answer: then it is not waited for.
fn ask(program: &str, arguments: &[&str]) -> Result<String, String> {
    let failed = |error| format!("{program}: {error}");
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        // what these commands say fits into a pipe
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let handle = process::handle(child.id()).map_err(failed)?;
    if let Some(handle) = handle
        && !process::wait(&handle, Some(ANSWER_PATIENCE)).map_err(failed)?
    {
        child.kill().and_then(|()| child.wait()).map_err(failed)?;
        return Err(format!("{program} does not answer within {} s", ANSWER_PATIENCE.as_secs()));
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing").to_owned())
}

/// The version of the Docker daemon, or why there is none.
pub fn docker_version() -> Result<String, String> {
    ask("docker", &["version", "--format", "{{.Server.Version}}"]).map(|version| version.trim().to_owned())
}

/// The image that is used for a Kubernetes version: the wanted one, else the one built here, else the published one.
#[must_use]
pub fn choose_image(wanted: Option<&str>, version: &str) -> String {
    let built = format!("{BUILT}:v{version}");
    match wanted {
        Some(wanted) => wanted.to_owned(),
        None if image(&built).is_some() => built,
        None => PUBLISHED.to_owned(),
    }
}

/// Finds what is needed to make a cluster.
pub(crate) fn tools(config: &KindConfig, version: &str, cache: &Path) -> Result<Tools, Error> {
    let missing = |what: &str, why: String| Error::Kind { what: what.to_owned(), why };
    docker_version().map_err(|why| missing("no Docker daemon answers", why))?;
    let kind = program(cache).ok_or_else(|| {
        missing(
            "the command kind is missing",
            "install it, or run ci/kind-node/build, which leaves it in the cache".to_owned(),
        )
    })?;
    let wanted = config.image.as_deref();
    let name = choose_image(wanted, version);
    let built = image(&name).unwrap_or(false);
    Ok(Tools { kind, image: name, built })
}

/// The most nodes that this machine bears on kind: by cores, memory and inotify instances.
#[must_use]
pub fn most_nodes() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().split(' ').next());
    let mib = kib.and_then(|kib| kib.parse::<u64>().ok()).map_or(0, |kib| kib / 1024);
    let inotify = fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").unwrap_or_default();
    bearable(cores, mib, inotify.trim().parse().unwrap_or_default())
}

fn bearable(cores: u64, memory_mib: u64, inotify: u64) -> u32 {
    let by_memory = memory_mib.saturating_sub(MEMORY.0) / MEMORY.1;
    let by_inotify = inotify.saturating_sub(INOTIFY.0 + INOTIFY_OF_OTHERS) / INOTIFY.1;
    u32::try_from((cores * NODES_PER_CORE).min(by_memory).min(by_inotify)).unwrap_or(u32::MAX)
}

/// The configuration of a cluster.
fn configuration(built: bool, cgroup_v1: bool) -> String {
    let client = "{name: kube-api-qps, value: \"1000\"}, {name: kube-api-burst, value: \"2000\"}";
    let mut text = "\
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
nodes: [{role: control-plane}]
networking:
  apiServerAddress: 127.0.0.1
"
    .to_owned();
    if built {
        // it has a CNI of its own, and no images of these
        text += "  disableDefaultCNI: true\n  kubeProxyMode: none\n";
    }
    text += "kubeadmConfigPatches:\n";
    if built {
        text +=
            "- |\n  kind: InitConfiguration\n  skipPhases: [preflight, addon/kube-proxy, addon/coredns]\n";
    }
    // the data is thrown away with the cluster; with the defaults of the clients many nodes take many seconds
    // writing to a String can't fail
    let _ = write!(
        text,
        "\
- |
  kind: ClusterConfiguration
  etcd: {{local: {{extraArgs: [{{name: unsafe-no-fsync, value: \"true\"}}]}}}}
  controllerManager: {{extraArgs: [{client}]}}
  scheduler: {{extraArgs: [{client}]}}
"
    );
    if built || cgroup_v1 {
        text += "- |\n  kind: KubeletConfiguration\n  cgroupDriver: cgroupfs\n  cgroupRoot: /\n";
    }
    if cgroup_v1 {
        text += "  failCgroupV1: false\n";
    }
    text
}

/// Makes or adopts the cluster, and waits until it is of use.
pub(crate) async fn up(
    dir: &Path,
    config: &KindConfig,
    tools: &Tools,
    crds: &[DynamicObject],
) -> Result<PathBuf, Error> {
    private_dir(&dir.join("logs"))?;
    let there = ask_kind(tools, vec!["get".to_owned(), "clusters".to_owned()]).await?;
    let adopted = there.lines().any(|name| name.trim() == config.name);
    if adopted && !config.adopt {
        let what = format!("there is a kind cluster {} already", config.name);
        return Err(Error::Kind { what, why: "it is not ours to use".to_owned() });
    }
    let made = Made { kind: tools.kind.clone(), name: config.name.clone(), adopted };
    publish_json(&dir.join(RECORD), &made)?;
    if !adopted && let Err(error) = create(dir, config, tools).await {
        // somebody else was faster: then it is theirs
        if matches!(&error, Error::Kind { why, .. } if why.contains("already exist")) {
            publish_json(&dir.join(RECORD), &Made { adopted: true, ..made })?;
        }
        return Err(error);
    }
    let kubeconfig = dir.join("kubeconfig");
    let words = ["get", "kubeconfig", "--name", &config.name];
    let text = ask_kind(tools, words.map(str::to_owned).to_vec()).await?;
    write_private(&kubeconfig, text)?;
    let client = buffer_client::connect(Some(&kubeconfig)).await?;
    if !adopted {
        // kind takes the taint off a control plane that is alone, and pods would land there
        let nodes: Api<Node> = Api::all(client.clone());
        let labelled = ListParams::default().labels("node-role.kubernetes.io/control-plane");
        for node in nodes.list(&labelled).await.map_err(Box::new)? {
            let taint = Taint {
                key: "node-role.kubernetes.io/control-plane".to_owned(),
                effect: "NoSchedule".to_owned(),
                ..Taint::default()
            };
            let patch = serde_json::json!({"spec": {"taints": [taint]}});
            nodes
                .patch(&node.name_any(), &PatchParams::default(), &Patch::Strategic(patch))
                .await
                .map_err(Box::new)?;
        }
    }
    ready::cluster(&client, crds).await?;
    Ok(kubeconfig)
}

/// Asks `kind`, beside the runtime: the supervisor has one thread, and must hear when its owner is gone.
async fn ask_kind(tools: &Tools, arguments: Vec<String>) -> Result<String, Error> {
    let kind = tools.kind.display().to_string();
    let what = format!("kind {}", arguments.join(" "));
    let asked = tokio::task::spawn_blocking(move || {
        ask(&kind, &arguments.iter().map(String::as_str).collect::<Vec<_>>())
    });
    let answer = asked.await.map_err(|error| Error::Failed(error.to_string()))?;
    answer.map_err(|why| Error::Kind { what, why })
}

/// Returns when a cluster is lost: its control plane does not run any more, or Docker does not answer.
pub async fn lost(name: &str) -> Error {
    let container = format!("{name}-control-plane");
    let (mut missed, mut why) = (0, String::new());
    while missed < LOOK.1 {
        tokio::time::sleep(LOOK.0).await;
        let container = container.clone();
        let asked = tokio::task::spawn_blocking(move || {
            ask("docker", &["inspect", "--format", "{{.State.Running}}", &container])
        });
        (missed, why) = match asked.await {
            Ok(Ok(running)) if running.trim() == "true" => (0, String::new()),
            Ok(Ok(_)) => (missed + 1, "its control plane has ended".to_owned()),
            Ok(Err(why)) => (missed + 1, why),
            Err(error) => (missed + 1, error.to_string()),
        };
    }
    Error::Kind { what: format!("the kind cluster {name} is lost"), why }
}

/// The kind cluster that the plane in this folder has adopted, if it has.
pub fn adopted(dir: &Path) -> Result<Option<String>, Error> {
    let made = read_json::<Made>(&dir.join(RECORD))?;
    Ok(made.filter(|made| made.adopted).map(|made| made.name))
}

async fn create(dir: &Path, config: &KindConfig, tools: &Tools) -> Result<(), Error> {
    let file = dir.join("kind.yaml");
    let cgroup_v1 = !Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    write_private(&file, configuration(tools.built, cgroup_v1))?;
    let log = dir.join("logs/kind.log");
    let out = fs::File::create(&log).map_err(Error::io("writing", &log))?;
    let err = out.try_clone().map_err(Error::io("writing", &log))?;
    let status = tokio::process::Command::new(&tools.kind)
        .args(["create", "cluster", "--wait", "120s", "--name", &config.name, "--image", &tools.image])
        .arg("--config")
        .arg(&file)
        // else it would write into the user's own
        .arg("--kubeconfig")
        .arg(dir.join("kind.kubeconfig"))
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .kill_on_drop(true)
        .status()
        .await
        .map_err(Error::io("starting", &tools.kind))?;
    if status.success() {
        return Ok(());
    }
    let mut why = tail(&log, 5);
    if tools.image == PUBLISHED {
        why += "; where no image can be pulled, ci/kind-node/build makes one";
    }
    Err(Error::Kind { what: format!("kind create cluster --image {}", tools.image), why })
}

/// The variables by which a cloud knows that it runs on a kind cluster.
pub(crate) fn variables(dir: &Path, config: &KindConfig) -> BTreeMap<String, String> {
    let logs = config.join_logs.clone().unwrap_or_else(|| dir.join("logs/joins"));
    [
        ("BUFCONF_BACKEND", "kind".to_owned()),
        ("BUFCONF_KIND_CLUSTER", config.name.clone()),
        ("BUFCONF_JOIN_LOGS", logs.display().to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Takes away the cluster that was made for a plane, with all its containers and volumes. One that was adopted stays.
pub(crate) fn delete(dir: &Path) -> Result<(), Error> {
    let Some(made) = read_json::<Made>(&dir.join(RECORD))? else { return Ok(()) };
    if made.adopted {
        return Ok(());
    }
    let kind = made.kind.display().to_string();
    ask(&kind, &["delete", "cluster", "--name", &made.name])
        .map(|_| ())
        .map_err(|why| Error::Kind { what: format!("kind delete cluster --name {}", made.name), why })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::cores(2, 24_000, 1024, 16)]
    #[case::inotify(16, 64_000, 128, 2)]
    #[case::memory(16, 2_000, 8192, 4)]
    #[case::nothing(1, 1_000, 0, 0)]
    fn nodes_that_a_machine_bears(
        #[case] cores: u64,
        #[case] memory: u64,
        #[case] inotify: u64,
        #[case] nodes: u32,
    ) {
        assert_eq!(bearable(cores, memory, inotify), nodes);
    }

    #[rstest]
    #[case(true, true, true, true)]
    #[case(false, true, false, true)]
    #[case(false, false, false, false)]
    fn a_configuration_fits_image_and_host(
        #[case] built: bool,
        #[case] cgroup_v1: bool,
        #[case] own_network: bool,
        #[case] cgroupfs: bool,
    ) {
        let text = configuration(built, cgroup_v1);
        let value: serde_json::Value = serde_yaml::from_str(&text).unwrap();
        assert_eq!(value["networking"].get("disableDefaultCNI").is_some(), own_network, "{text}");
        let patches = value["kubeadmConfigPatches"].as_array().unwrap();
        let patches: Vec<serde_json::Value> =
            patches.iter().map(|patch| serde_yaml::from_str(patch.as_str().unwrap()).unwrap()).collect();
        let kubelet = patches.iter().find(|patch| patch["kind"] == "KubeletConfiguration");
        assert_eq!(kubelet.is_some(), cgroupfs, "{text}");
        assert!(patches.iter().any(|patch| patch["scheduler"]["extraArgs"][0]["name"] == "kube-api-qps"));
    }

    #[test]
    fn an_adopted_cluster_stays() {
        let dir = tempfile::tempdir().unwrap();
        delete(dir.path()).unwrap();
        let made = Made { kind: "/bin/false".into(), name: "theirs".to_owned(), adopted: true };
        publish_json(&dir.path().join(RECORD), &made).unwrap();
        delete(dir.path()).unwrap();
        publish_json(&dir.path().join(RECORD), &Made { adopted: false, ..made }).unwrap();
        let error = delete(dir.path()).unwrap_err().to_string();
        assert!(error.contains("kind delete cluster --name theirs"), "{error}");
    }
}
