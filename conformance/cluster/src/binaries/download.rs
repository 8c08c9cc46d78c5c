//! The publishers' binaries, each compared with the digest published next to it.

use std::{
    fs::{self, File},
    io::{Read, Write},
    path::Path,
    process::Command,
    time::Duration,
};

use sha2::{Digest, Sha256};
use ureq::Agent;

use super::{Binary, Progress, Release, Sources};

/// Downloads what it can into `staging`; a note says what could not be had and why.
pub(super) fn download(
    binaries: &[Binary],
    release: &Release,
    sources: &Sources,
    staging: &Path,
    progress: &dyn Progress,
) -> Vec<String> {
    let Some(arch) = arch() else {
        return vec![format!("no download for {}", std::env::consts::ARCH)];
    };
    let agent = agent();
    let note = |binary: Binary, reason| format!("downloading {}: {reason}", binary.file());
    let (etcd_wanted, servers): (Vec<Binary>, Vec<Binary>) =
        binaries.iter().partition(|&&binary| binary == Binary::Etcd);
    // Side by side: an offline machine shall wait for one time-out, not for two.
    std::thread::scope(|scope| {
        let etcd = scope.spawn(|| {
            let result = etcd_wanted
                .first()
                .map(|_| etcd(&agent, &sources.etcd_url, release, arch, staging, progress));
            result.and_then(Result::err).map(|reason| note(Binary::Etcd, reason))
        });
        // The first failure ends it: they all come from the same place.
        let servers = servers.into_iter().find_map(|binary| {
            kubernetes(&agent, &sources.kubernetes_url, binary, release, arch, staging, progress)
                .err()
                .map(|reason| note(binary, reason))
        });
        let etcd = etcd.join().unwrap_or_else(|_| Some("downloading etcd: crashed".to_owned()));
        etcd.into_iter().chain(servers).collect()
    })
}

fn arch() -> Option<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Some("amd64"),
        "aarch64" => Some("arm64"),
        _ => None,
    }
}

/// Gives up quickly where there is no network, and never waits for ever for one that stalls.
fn agent() -> Agent {
    Agent::config_builder()
        .timeout_resolve(Some(Duration::from_secs(2)))
        .timeout_connect(Some(Duration::from_secs(2)))
        .timeout_recv_response(Some(Duration::from_secs(15)))
        .timeout_per_read(Some(Duration::from_secs(30)))
        .build()
        .into()
}

fn kubernetes(
    agent: &Agent,
    base: &str,
    binary: Binary,
    release: &Release,
    arch: &str,
    staging: &Path,
    progress: &dyn Progress,
) -> Result<(), String> {
    let name = binary.file();
    let url = format!("{base}/v{}/bin/linux/{arch}/{name}", release.kubernetes);
    // The file holds the digest alone, or the digest and a name.
    let listed = text(agent, &format!("{url}.sha256"))?;
    let digest = listed.split_whitespace().next().unwrap_or_default().to_owned();
    progress.step(&format!("downloading {name} {} from {base}", release.kubernetes));
    fetch(agent, &url, &digest, &staging.join(name))
}

fn etcd(
    agent: &Agent,
    base: &str,
    release: &Release,
    arch: &str,
    staging: &Path,
    progress: &dyn Progress,
) -> Result<(), String> {
    let folder = format!("etcd-v{}-linux-{arch}", release.etcd);
    let archive = format!("{folder}.tar.gz");
    let listed = text(agent, &format!("{base}/v{}/SHA256SUMS", release.etcd))?;
    let digest = digest_of(&archive, &listed).ok_or_else(|| format!("{archive} is not in SHA256SUMS"))?;
    progress.step(&format!("downloading etcd {} from {base}", release.etcd));
    let path = staging.join(&archive);
    fetch(agent, &format!("{base}/v{}/{archive}", release.etcd), digest, &path)?;
    let output = Command::new("tar")
        .arg("-xzf")
        .arg(&path)
        .arg("-C")
        .arg(staging)
        .args(["--strip-components=1", &format!("{folder}/etcd")])
        .output()
        .map_err(|error| format!("running tar: {error}"))?;
    fs::remove_file(&path).map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("unpacking: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}

/// The digest of a file in the format of `sha256sum`.
fn digest_of<'a>(file: &str, listed: &'a str) -> Option<&'a str> {
    listed.lines().find_map(|line| {
        let (digest, name) = line.split_once(char::is_whitespace)?;
        (name.trim_start().trim_start_matches('*') == file).then_some(digest)
    })
}

fn text(agent: &Agent, url: &str) -> Result<String, String> {
    let mut response = agent.get(url).call().map_err(|error| format!("{url}: {error}"))?;
    response.body_mut().read_to_string().map_err(|error| format!("{url}: {error}"))
}

fn fetch(agent: &Agent, url: &str, digest: &str, path: &Path) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{url}: {error}");
    let mut reader = agent.get(url).call().map_err(|error| failed(&error))?.into_body().into_reader();
    let mut file = File::create(path).map_err(|error| failed(&error))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let read = reader.read(&mut buffer).map_err(|error| failed(&error))?;
        if read == 0 {
            break;
        }
        hash.update(&buffer[..read]);
        file.write_all(&buffer[..read]).map_err(|error| failed(&error))?;
    }
    let got = format!("{:x}", hash.finalize());
    if got.eq_ignore_ascii_case(digest) {
        return Ok(());
    }
    fs::remove_file(path).map_err(|error| failed(&error))?;
    Err(format!("{url}: SHA-256 is {got}, the publisher says {digest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_found_by_the_whole_name() {
        let listed = "aa  etcd-v3.6.16-linux-amd64.tar.gz.asc\nbb  etcd-v3.6.16-linux-amd64.tar.gz\ncc *x\n";
        assert_eq!(digest_of("etcd-v3.6.16-linux-amd64.tar.gz", listed), Some("bb"));
        assert_eq!(digest_of("x", listed), Some("cc"));
        assert_eq!(digest_of("y", listed), None);
    }
}
