//! Building with Go, for machines that reach a module proxy but no download site.

use std::{fs, path::Path, process::Command};

use super::{Binary, Progress, Release, version::Module};

/// Builds binaries into `staging`. The error is a sentence for people.
pub(super) fn build(
    binaries: &[Binary],
    release: &Release,
    go: &Path,
    staging: &Path,
    progress: &dyn Progress,
) -> Result<(), String> {
    let (etcd, kubernetes): (Vec<Binary>, Vec<Binary>) =
        binaries.iter().partition(|&&binary| binary == Binary::Etcd);
    if !etcd.is_empty() {
        let folder = staging.join("etcd-module");
        let toolchain = unpack(&release.etcd_module, &folder, go)?;
        progress.step(&format!("building etcd from source with {toolchain} (about 1 minute)"));
        compile(
            go,
            &folder,
            "-s -w",
            &staging.join(Binary::Etcd.file()),
            &["go.etcd.io/etcd/server/v3".to_owned()],
        )?;
    }
    if !kubernetes.is_empty() {
        let folder = staging.join("kubernetes-module");
        let toolchain = unpack(&release.kubernetes_module, &folder, go)?;
        let names = kubernetes.iter().map(|binary| binary.file()).collect::<Vec<_>>();
        progress
            .step(&format!("building {} from source with {toolchain} (about 7 minutes)", names.join(", ")));
        let packages = names.iter().map(|name| format!("k8s.io/kubernetes/cmd/{name}")).collect::<Vec<_>>();
        compile(go, &folder, &version_flags(release), staging, &packages)?;
    }
    Ok(())
}

/// Without these the servers report v0.0.0 and clients misbehave.
fn version_flags(release: &Release) -> String {
    let (major, minor) = release.minor.split_once('.').unwrap_or((release.minor, ""));
    let package = "k8s.io/component-base/version";
    format!(
        "-s -w -X {package}.gitVersion=v{} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}",
        release.kubernetes
    )
}

/// Writes a module's files and finds the Go version that will build it.
fn unpack(module: &Module, folder: &Path, go: &Path) -> Result<String, String> {
    fs::create_dir_all(folder).map_err(|error| format!("building: {error}"))?;
    for (name, content) in &module.files {
        fs::write(folder.join(name), content).map_err(|error| format!("building: {error}"))?;
    }
    let wanted = module.files[0].1.lines().find_map(|line| line.strip_prefix("go ")).unwrap_or_default();
    // Inside the module this also picks, and fetches when that is allowed, a newer toolchain that it asks for.
    let output =
        Command::new(go).arg("version").current_dir(folder).env("GOWORK", "off").output().map_err(
            |error| format!("no Go to build from source (Go {wanted} or newer is needed): {error}"),
        )?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.split_whitespace().nth(2).unwrap_or_default().to_owned();
    if !output.status.success() || version.is_empty() {
        let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(format!("Go can't build this (Go {wanted} or newer is needed): {reason}"));
    }
    // Before 1.21 Go ignores a newer `go` line and fails much later with something unreadable.
    if numbers(&version) < numbers(wanted) {
        return Err(format!("{version} is too old to build this (Go {wanted} or newer is needed)"));
    }
    Ok(version)
}

/// "go1.26.8" or "1.26.0" as numbers that compare.
fn numbers(version: &str) -> Vec<u32> {
    version
        .trim_start_matches("go")
        .split('.')
        .map_while(|part| {
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            part[..digits].parse().ok()
        })
        .collect()
}

fn compile(go: &Path, folder: &Path, flags: &str, out: &Path, packages: &[String]) -> Result<(), String> {
    let output = Command::new(go)
        .args(["build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o"])
        .arg(out)
        .args(packages)
        .current_dir(folder)
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .output()
        .map_err(|error| format!("running go build: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().rev().take(5).collect::<Vec<_>>();
    let last = last.into_iter().rev().collect::<Vec<_>>().join(" | ");
    Err(format!("building from source failed ({}): {last}", output.status))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::binaries::release;

    #[rstest]
    #[case("go1.26.8", "1.26.0", false)]
    #[case("go1.27rc1", "1.26.0", false)]
    #[case("go1.19.8", "1.26.0", true)]
    #[case("go1.9", "1.26.0", true)]
    fn go_versions_compare_as_numbers(#[case] there: &str, #[case] wanted: &str, #[case] too_old: bool) {
        assert_eq!(numbers(there) < numbers(wanted), too_old);
    }

    #[test]
    fn the_build_says_its_version() {
        let flags = version_flags(release("1.36").unwrap());
        assert!(flags.contains(".gitVersion=v1.36.3 "), "{flags}");
        assert!(flags.ends_with(".gitMinor=36"), "{flags}");
    }
}
