//! `bufconf doctor`: what on this machine would keep a run from working, and what to do about it.
//!
//! Facts are gathered first; what follows from them is a pure function.

use std::{fs, net::TcpListener, path::Path};

use test_cluster::{
    binaries::{self, Sources},
    clusters::{self, State},
    kind,
};

use crate::{
    cli::ClusterKind,
    failure::{ENVIRONMENT, Failure},
    run_dir,
};

/// What was found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// How bad it is.
    pub weight: Weight,
    /// What it is.
    pub what: String,
    /// What to do; empty where nothing has to be done.
    pub fix: String,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Weight {
    /// All is well.
    Fine,
    /// A run works, but not with everything.
    Hint,
    /// No run works.
    Problem,
}

fn fine(what: impl Into<String>) -> Finding {
    Finding { weight: Weight::Fine, what: what.into(), fix: String::new() }
}

fn hint(what: impl Into<String>, fix: impl Into<String>) -> Finding {
    Finding { weight: Weight::Hint, what: what.into(), fix: fix.into() }
}

fn problem(what: impl Into<String>, fix: impl Into<String>) -> Finding {
    Finding { weight: Weight::Problem, what: what.into(), fix: fix.into() }
}

/// What an embedded cluster needs.
#[derive(Clone, Debug)]
pub struct Embedded {
    /// The control-plane binaries that a run would use are in the cache or in `$KUBEBUILDER_ASSETS`.
    pub there: bool,
    /// What the Go command says of its version, if there is one.
    pub go: Option<String>,
    /// Why no port on loopback can be had, if none can.
    pub port: Option<String>,
    /// Total memory, MiB.
    pub memory: u64,
}

/// What kind needs.
#[derive(Clone, Debug)]
pub struct Kind {
    /// Version of the Docker daemon, or why none answers.
    pub docker: Result<String, String>,
    /// The command `kind` is there.
    pub command: bool,
    /// Node image that would be used.
    pub image: String,
    /// Docker has it.
    pub image_there: bool,
    /// Version of the host's control groups: 1 or 2.
    pub cgroups: u8,
    /// `fs.inotify.max_user_instances`.
    pub instances: u64,
    /// `fs.inotify.max_user_watches`.
    pub watches: u64,
    /// Files that a process may open.
    pub files: u64,
    /// Free space where Docker or the cache is, MiB.
    pub disk: u64,
    /// Nodes that the machine bears.
    pub nodes: u32,
    /// kind clusters of ours that nobody owns.
    pub abandoned: Vec<String>,
}

/// What follows for an embedded cluster.
#[must_use]
pub fn embedded(facts: &Embedded) -> Vec<Finding> {
    let binaries = match (&facts.go, facts.there) {
        (_, true) => fine("the control-plane binaries are there"),
        (Some(go), false) => {
            hint(format!("the control-plane binaries are downloaded or built first ({go})"), "")
        }
        (None, false) => hint(
            "the control-plane binaries are downloaded first; there is no Go to build them without a network",
            "install Go, or set KUBEBUILDER_ASSETS to a folder that holds them",
        ),
    };
    let port = match &facts.port {
        None => fine("ports on 127.0.0.1 can be had"),
        Some(why) => {
            problem(format!("no port on 127.0.0.1 can be had: {why}"), "bring the loopback interface up")
        }
    };
    let memory = if facts.memory < 1024 {
        problem(
            format!("{} MiB of memory: a control plane takes 600", facts.memory),
            "use a machine with 2 GiB or more",
        )
    } else {
        fine(format!("{} MiB of memory", facts.memory))
    };
    vec![binaries, port, memory]
}

/// What follows for kind.
#[must_use]
pub fn on_kind(facts: &Kind) -> Vec<Finding> {
    let mut found = Vec::new();
    match &facts.docker {
        Ok(version) => found.push(fine(format!("Docker {version} answers"))),
        Err(why) => {
            found.push(problem(
                format!("no Docker daemon answers: {why}"),
                "start it, or run ci/docker start",
            ));
        }
    }
    found.push(if facts.command {
        fine("the command kind is there")
    } else {
        problem("the command kind is missing", "install it, or run ci/kind-node/build")
    });
    found.push(match (facts.image_there, facts.image == kind::PUBLISHED) {
        (true, _) => fine(format!("the node image is {}", facts.image)),
        (false, true) => hint(
            format!("the node image {} is pulled first", facts.image),
            "where no image can be pulled: ci/kind-node/build",
        ),
        (false, false) => problem(
            format!("Docker has no image {}", facts.image),
            "pull it, or leave --kind-image out, or run ci/kind-node/build",
        ),
    });
    found.push(if facts.cgroups == 1 {
        hint(
            "control groups of version 1: kubelets from 1.35 on have to be told to bear them, which is done",
            "",
        )
    } else {
        fine("control groups of version 2")
    });
    let sysctl = |name: &str, have: u64, want: u64, why: &str| {
        if have < want {
            hint(
                format!("fs.inotify.{name} is {have}: {why}"),
                format!("as root: sysctl -w fs.inotify.{name}={want}"),
            )
        } else {
            fine(format!("fs.inotify.{name} is {have}"))
        }
    };
    found.push(sysctl("max_user_instances", facts.instances, 512, "a node takes 13, a control plane 26"));
    found.push(sysctl("max_user_watches", facts.watches, 65536, "kubelets watch many files"));
    found.push(if facts.files < 4096 {
        hint(format!("a process may open {} files", facts.files), "ulimit -n 65536")
    } else {
        fine(format!("a process may open {} files", facts.files))
    });
    found.push(if facts.disk < 4096 {
        problem(
            format!("{} MiB of free disk: the node image and its nodes take 4 GiB", facts.disk),
            "make room",
        )
    } else {
        fine(format!("{} MiB of free disk", facts.disk))
    });
    found.push(if facts.nodes == 0 {
        problem("this machine bears no node", "see what is said of memory and inotify")
    } else {
        fine(format!("this machine bears {} nodes at the same time", facts.nodes))
    });
    found.extend(facts.abandoned.iter().map(|name| {
        hint(
            format!("the kind cluster {name} is not known here"),
            format!("if nobody uses it: kind delete cluster --name {name}"),
        )
    }));
    found
}

/// Looks, tells, and returns the exit code.
pub fn execute(cluster: ClusterKind, kubernetes: &str, image: Option<&str>) -> Result<u8, Failure> {
    let sources = Sources::from_env()?;
    let version = binaries::release(kubernetes)?.kubernetes;
    let mut findings = match cluster {
        ClusterKind::Embedded => embedded(&look_embedded(&sources, version)),
        ClusterKind::Kind => on_kind(&look_kind(&sources, version, image)?),
        ClusterKind::Existing => {
            return Err(Failure::usage(anyhow::anyhow!(
                "an existing cluster is looked at by the run itself; say --cluster embedded or kind"
            )));
        }
    };
    for (name, state) in clusters::list(&clusters::default_root()?)? {
        if matches!(state, State::Stale) {
            findings.push(hint(
                format!("the cluster {name} was left behind by a supervisor that was killed"),
                format!("bufconf cluster down --name {name}"),
            ));
        }
    }
    for finding in &findings {
        let sign = match finding.weight {
            Weight::Fine => "ok     ",
            Weight::Hint => "hint   ",
            Weight::Problem => "problem",
        };
        println!("{sign}  {}", finding.what);
        if !finding.fix.is_empty() {
            println!("         -> {}", finding.fix);
        }
    }
    let bad = findings.iter().any(|finding| finding.weight == Weight::Problem);
    Ok(if bad { ENVIRONMENT } else { 0 })
}

fn look_embedded(sources: &Sources, version: &str) -> Embedded {
    let all = |folder: &Path| {
        ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]
            .iter()
            .all(|name| folder.join(name).exists())
    };
    let cached = sources.cache.join("control-plane").join(version);
    let go = std::process::Command::new(&sources.go).arg("version").output().ok();
    let go = go.filter(|output| output.status.success());
    Embedded {
        there: sources.assets.as_deref().is_some_and(all) || all(&cached),
        go: go.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        port: TcpListener::bind("127.0.0.1:0").err().map(|error| error.to_string()),
        memory: memory(),
    }
}

fn look_kind(sources: &Sources, version: &str, image: Option<&str>) -> Result<Kind, Failure> {
    let number = |file: &str| {
        fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or_default()
    };
    let image = kind::choose_image(image, version);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let disk = rustix::fs::statvfs("/").map_or(0, |disk| disk.f_bavail * disk.f_frsize / (1 << 20));
    let owned = kind::owned(&[clusters::default_root()?, run_dir::root().map_err(Failure::environment)?])?;
    let mut abandoned = kind::clusters(&sources.cache);
    abandoned.retain(|name| name.starts_with("bufconf") && !owned.contains(name));
    Ok(Kind {
        docker: kind::docker_version(),
        command: kind::program(&sources.cache).is_some(),
        image_there: kind::has_image(&image),
        image,
        cgroups: if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() { 2 } else { 1 },
        instances: number("/proc/sys/fs/inotify/max_user_instances"),
        watches: number("/proc/sys/fs/inotify/max_user_watches"),
        files: limit.unwrap_or(u64::MAX),
        disk,
        nodes: kind::most_nodes(),
        abandoned,
    })
}

fn memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().split(' ').next());
    kib.and_then(|kib| kib.parse::<u64>().ok()).map_or(0, |kib| kib / 1024)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn good() -> Kind {
        Kind {
            docker: Ok("28.0".to_owned()),
            command: true,
            image: "bufconf/kind-node:v1.36.3".to_owned(),
            image_there: true,
            cgroups: 2,
            instances: 1024,
            watches: 524_288,
            files: 65_536,
            disk: 50_000,
            nodes: 16,
            abandoned: Vec::new(),
        }
    }

    #[test]
    fn a_good_machine_has_nothing_to_mend() {
        assert!(on_kind(&good()).iter().all(|finding| finding.weight == Weight::Fine));
        let embedded_facts = Embedded { there: true, go: None, port: None, memory: 4096 };
        assert!(embedded(&embedded_facts).iter().all(|finding| finding.weight == Weight::Fine));
    }

    #[rstest]
    #[case::docker(Kind { docker: Err("no socket".to_owned()), ..good() }, Weight::Problem, "no socket", "ci/docker start")]
    #[case::command(Kind { command: false, ..good() }, Weight::Problem, "kind is missing", "ci/kind-node/build")]
    #[case::image(Kind { image_there: false, ..good() }, Weight::Problem, "no image bufconf", "ci/kind-node/build")]
    #[case::published(
        Kind { image: kind::PUBLISHED.to_owned(), image_there: false, ..good() },
        Weight::Hint, "is pulled first", "ci/kind-node/build"
    )]
    #[case::cgroups(Kind { cgroups: 1, ..good() }, Weight::Hint, "version 1", "")]
    #[case::instances(Kind { instances: 128, ..good() }, Weight::Hint, "max_user_instances is 128", "sysctl -w")]
    #[case::watches(Kind { watches: 8192, ..good() }, Weight::Hint, "max_user_watches is 8192", "sysctl -w")]
    #[case::files(Kind { files: 1024, ..good() }, Weight::Hint, "1024 files", "ulimit")]
    #[case::disk(Kind { disk: 100, ..good() }, Weight::Problem, "100 MiB of free disk", "make room")]
    #[case::nodes(Kind { nodes: 0, ..good() }, Weight::Problem, "bears no node", "memory and inotify")]
    #[case::abandoned(
        Kind { abandoned: vec!["bufconf-1".to_owned()], ..good() },
        Weight::Hint, "bufconf-1 is not known here", "kind delete cluster --name bufconf-1"
    )]
    fn each_finding_names_its_fix(
        #[case] facts: Kind,
        #[case] weight: Weight,
        #[case] what: &str,
        #[case] fix: &str,
    ) {
        let findings: Vec<_> =
            on_kind(&facts).into_iter().filter(|finding| finding.weight != Weight::Fine).collect();
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!(finding.weight, weight);
        assert!(finding.what.contains(what) && finding.fix.contains(fix), "{finding:?}");
    }

    #[rstest]
    #[case(Embedded { there: false, go: Some("go1.26".to_owned()), port: None, memory: 4096 }, "built first (go1.26)")]
    #[case(Embedded { there: false, go: None, port: None, memory: 4096 }, "no Go")]
    #[case(Embedded { there: true, go: None, port: Some("no lo".to_owned()), memory: 4096 }, "no lo")]
    #[case(Embedded { there: true, go: None, port: None, memory: 512 }, "512 MiB")]
    fn findings_of_an_embedded_cluster(#[case] facts: Embedded, #[case] what: &str) {
        let findings: Vec<_> =
            embedded(&facts).into_iter().filter(|finding| finding.weight != Weight::Fine).collect();
        assert!(findings.len() == 1 && findings[0].what.contains(what), "{findings:?}");
    }
}
