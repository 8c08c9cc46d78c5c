//! `bufconf cluster …`: planes that people start by name, and the supervisor behind every plane.

use std::path::Path;

use anyhow::Context;
use test_cluster::{
    KindConfig,
    binaries::Sources,
    clusters::{self, State},
    control::{self, Request},
    kind,
    supervisor::{self, Outcome},
};

use crate::{
    cli::{ClusterCommand, ClusterKind, DEFAULT_NAME},
    failure::Failure,
    run,
    run_dir::RunDir,
    session,
    subject::Subject,
};

/// Starts, stops or shows clusters.
pub fn execute(command: ClusterCommand) -> Result<(), Failure> {
    match command {
        ClusterCommand::Up { name, with, kubernetes, cluster, kind_image } => {
            let kind = match cluster {
                ClusterKind::Embedded => None,
                ClusterKind::Kind => {
                    // `default` is ours to say; among people's kind clusters it would say nothing
                    let name = if name == DEFAULT_NAME { "bufconf" } else { &name };
                    Some(KindConfig {
                        name: name.to_owned(),
                        adopt: true,
                        image: kind_image,
                        join_logs: None,
                    })
                }
                ClusterKind::Existing => {
                    return Err(Failure::usage(anyhow::anyhow!("an existing cluster is up already")));
                }
            };
            up(&name, with.as_deref(), &kubernetes, kind)
        }
        ClusterCommand::Down { name } => {
            let root = clusters::default_root()?;
            let adopted = kind::adopted(&root.join(&name))?;
            if clusters::stop(&root, &name)? {
                eprintln!("cluster {name} is gone");
                if let Some(adopted) = adopted {
                    eprintln!("the kind cluster {adopted} was there before, and stays");
                }
            } else {
                eprintln!("there is no cluster {name}");
            }
            Ok(())
        }
        ClusterCommand::Restart { kubeconfig, processes } => {
            // it lies in the folder of the cluster
            let dir = kubeconfig.parent().unwrap_or(Path::new("."));
            for process in processes {
                control::request(dir, &Request::Restart(process))?;
            }
            Ok(())
        }
        ClusterCommand::Status { name } => status(name.as_deref()),
        ClusterCommand::Serve { dir } => serve(&dir),
    }
}

fn up(name: &str, with: Option<&str>, kubernetes: &str, kind: Option<KindConfig>) -> Result<(), Failure> {
    let root = clusters::default_root()?;
    let program = session::program()?;
    let subject = with.map(|name| Subject::load(name, None)).transpose()?;
    if let Some(subject) = &subject {
        subject.prepare()?;
    }
    let mut config = match &subject {
        Some(subject) => subject.serve_config(
            &program,
            kubernetes,
            conformance_engine::scenario::Settings::default(),
            None,
        )?,
        None => test_cluster::ServeConfig { kubernetes: kubernetes.to_owned(), ..Default::default() },
    };
    config.kind = kind;
    clusters::sweep(&root)?;
    let say = |line: &str| eprintln!("{line}");
    let running = clusters::start(&root, name, &config, &program, &Sources::from_env()?, &say)?;
    if let Some(subject) = subject {
        if config.children.iter().any(|child| !running.ready.pids.contains_key(&child.name)) {
            let error = anyhow::anyhow!(
                "cluster {name} runs already, without this implementation; stop it first: bufconf cluster down --name {name}"
            );
            return Err(Failure::usage(error));
        }
        let runtime = tokio::runtime::Runtime::new().context("starting").map_err(Failure::environment)?;
        runtime.block_on(async {
            let client =
                buffer_client::connect(Some(running.kubeconfig())).await.map_err(Failure::environment)?;
            subject.install(&client, running.kubeconfig()).await
        })?;
    }
    if let Some(adopted) = kind::adopted(&running.dir)? {
        eprintln!("the kind cluster {adopted} was there before; it is used, and stays in the end");
    }
    println!("{}", running.kubeconfig().display());
    Ok(())
}

fn status(name: Option<&str>) -> Result<(), Failure> {
    let root = clusters::default_root()?;
    let found = match name {
        Some(name) => vec![(name.to_owned(), clusters::status(&root, name)?)],
        None => clusters::list(&root)?,
    };
    if found.is_empty() {
        println!("no clusters");
    }
    for (name, state) in found {
        match state {
            State::Absent => println!("{name}: not there"),
            State::New | State::Starting => println!("{name}: starting"),
            State::Failed(reason) => println!("{name}: failed: {reason}"),
            State::Stale => println!(
                "{name}: left behind by a supervisor that was killed; `bufconf cluster down` removes it"
            ),
            State::Ready(ready) => {
                println!("{name}: up, kubeconfig {}", ready.kubeconfig.display());
                // asked now: processes may have been started again since the cluster came up
                for (process, state) in control::request(&root.join(&name), &Request::Status)? {
                    let died = state.died.map(|death| format!(", {}", death.reason())).unwrap_or_default();
                    println!("  {process:<24} pid {}{died}", state.pid);
                }
            }
        }
    }
    Ok(())
}

/// The supervisor. The last process of a run to leave writes its report.
fn serve(dir: &Path) -> Result<(), Failure> {
    let run_dir = RunDir::of_plane(dir).map_err(Failure::environment)?;
    let outcome = supervisor::serve(dir)?;
    if let Some(run_dir) = run_dir {
        run_dir.leave(run::report_of_entries).map_err(Failure::environment)?;
    }
    match outcome {
        Outcome::AlreadyServed | Outcome::Ended | Outcome::OwnerGone => Ok(()),
        Outcome::Failed => {
            Err(Failure::environment(anyhow::anyhow!("the cluster in {} failed", dir.display())))
        }
    }
}
