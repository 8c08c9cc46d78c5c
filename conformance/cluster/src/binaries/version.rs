//! Which versions are pinned, and whether a binary is of one of them.

use std::{io, path::Path, process::Command, time::Duration};

use super::Binary;
use crate::Error;

/// The minor that is used when nobody asks for another one.
pub const DEFAULT_MINOR: &str = "1.36";

/// The pinned versions of one Kubernetes minor.
#[derive(Debug)]
pub struct Release {
    /// The minor: "1.36".
    pub minor: &'static str,
    /// The Kubernetes version: "1.36.3".
    pub kubernetes: &'static str,
    /// The etcd version that goes with it: "3.6.16".
    pub etcd: &'static str,
    pub(super) kubernetes_module: Module,
    pub(super) etcd_module: Module,
}

/// A Go module that builds binaries: its files, embedded so that one binary of ours is enough.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) files: [(&'static str, &'static str); 3],
}

macro_rules! module {
    ($path:literal) => {
        Module {
            files: [
                ("go.mod", include_str!(concat!("../../../../ci/control-plane/", $path, "/go.mod"))),
                ("go.sum", include_str!(concat!("../../../../ci/control-plane/", $path, "/go.sum"))),
                (
                    "components.go",
                    include_str!(concat!("../../../../ci/control-plane/", $path, "/components.go")),
                ),
            ],
        }
    };
}

static RELEASES: [Release; 1] = [Release {
    minor: "1.36",
    kubernetes: "1.36.3",
    etcd: "3.6.16",
    kubernetes_module: module!("1.36/kubernetes"),
    etcd_module: module!("1.36/etcd"),
}];

/// The pins of a Kubernetes minor.
pub fn release(minor: &str) -> Result<&'static Release, Error> {
    RELEASES.iter().find(|release| release.minor == minor).ok_or_else(|| Error::UnknownMinor {
        wanted: minor.to_owned(),
        supported: RELEASES.iter().map(|release| release.minor).collect::<Vec<_>>().join(", "),
    })
}

/// Asks a binary for its version; the error says in a few words why it can't be used.
pub(super) fn check(path: &Path, binary: Binary, release: &Release) -> Result<(), String> {
    let output = match run(path) {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err("is not there".to_owned()),
        Err(error) => return Err(format!("can't be run ({error})")),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let wanted = match binary {
        Binary::Etcd => minor_of(release.etcd),
        _ => Some(release.minor),
    };
    match version_in(binary, &text) {
        Some(version) if minor_of(version) == wanted => Ok(()),
        Some(version) => Err(format!("is {version}, not {}", wanted.unwrap_or_default())),
        None => Err("does not say its version".to_owned()),
    }
}

fn run(path: &Path) -> io::Result<std::process::Output> {
    let mut left = 50;
    loop {
        match Command::new(path).arg("--version").output() {
            // Just written by us; another thread's child still holds the file open until its own exec.
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && left > 0 => {
                left -= 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            result => return result,
        }
    }
}

/// "Kubernetes v1.36.3" or "etcd Version: 3.6.16", each the first line of an output.
fn version_in(binary: Binary, output: &str) -> Option<&str> {
    let line = output.lines().next()?.trim();
    match binary {
        Binary::Etcd => line.strip_prefix("etcd Version: "),
        _ => line.strip_prefix("Kubernetes v"),
    }
}

/// The first two numbers of a version, as they are written.
fn minor_of(version: &str) -> Option<&str> {
    let (major, rest) = version.split_once('.')?;
    let minor = &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())];
    (!minor.is_empty() && major.bytes().all(|b| b.is_ascii_digit()))
        .then(|| &version[..=major.len() + minor.len()])
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(Binary::Apiserver, "Kubernetes v1.36.3\n", Some("1.36"))]
    #[case(Binary::Scheduler, "Kubernetes v1.36.0-alpha.1+0123\n", Some("1.36"))]
    #[case(Binary::Apiserver, "Kubernetes v0.0.0-master+$Format:%H$\n", Some("0.0"))]
    #[case(Binary::Etcd, "etcd Version: 3.6.16\nGit SHA: Not provided\n", Some("3.6"))]
    #[case(Binary::Etcd, "Kubernetes v1.36.3\n", None)]
    #[case(Binary::Apiserver, "Kubernetes v1\n", None)]
    #[case(Binary::Apiserver, "Kubernetes v1.x\n", None)]
    #[case(Binary::Apiserver, "", None)]
    fn versions_are_read(#[case] binary: Binary, #[case] output: &str, #[case] minor: Option<&str>) {
        assert_eq!(version_in(binary, output).and_then(minor_of), minor);
    }

    #[test]
    fn a_minor_is_not_a_prefix() {
        assert_ne!(minor_of("1.360.1"), minor_of("1.36.1"));
        assert_eq!(minor_of("1.3"), Some("1.3"));
    }

    #[test]
    fn an_unknown_minor_names_the_known_ones() {
        assert_eq!(release("1.12").unwrap_err().to_string(), "Kubernetes 1.12 is not supported, only 1.36");
    }

    #[test]
    fn the_embedded_modules_are_those_of_the_pins() {
        for release in &RELEASES {
            let kubernetes = format!("require k8s.io/kubernetes v{}", release.kubernetes);
            assert!(release.kubernetes_module.files[0].1.contains(&kubernetes), "{kubernetes}");
            let etcd = format!("require go.etcd.io/etcd/server/v3 v{}", release.etcd);
            assert!(release.etcd_module.files[0].1.contains(&etcd), "{etcd}");
        }
    }
}
