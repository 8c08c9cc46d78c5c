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

use std::{path::Path, process::ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use rustix::process::Signal;
use support::{Said, World};
use test_cluster::{
    binaries::{self, Sources},
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
    assert!(!doctor.contains(&format!("{name} was left behind")), "{doctor}");

    // Somebody else uses it, and leaves it where it is.
    bufconf(&guest, &up).expect(0);
    bufconf(&guest, &["cluster", "down", "--name", &name]).expect(0);
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
