//! The Docker client: a few calls, each of which can be repeated.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use bollard::{
    exec::{CreateExecOptions, StartExecOptions, StartExecResults},
    models::{ContainerCreateBody, ContainerSummaryStateEnum},
    query_parameters::{
        CreateContainerOptionsBuilder, InspectContainerOptions, ListContainersOptionsBuilder,
        LogsOptionsBuilder, RemoveContainerOptionsBuilder, StartContainerOptions,
    },
};
use futures::StreamExt;

use super::machine::{ATTEMPT, CLAIM, CLAIM_UID, CLOUD, KIND_CLUSTER, KIND_ROLE};

/// How long a container may take to boot.
const BOOT_PATIENCE: Duration = Duration::from_mins(1);
/// How long a call may take that only asks.
const TIMEOUT: u64 = 60;

/// Why a container could not be dealt with.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Docker said no, or nothing at all.
    #[error("Docker: {doing}")]
    Docker {
        /// What it was asked for.
        doing: &'static str,
        /// Why not.
        source: Box<bollard::errors::Error>,
    },
    /// No kind cluster of that name has a control plane that runs.
    #[error("there is no kind cluster {0} with a running control plane")]
    NoCluster(String),
    /// The container has ended, or did not come up in time.
    #[error("the container {name} did not boot: {why}")]
    Boot {
        /// The container.
        name: String,
        /// What became of it.
        why: String,
    },
    /// The command in the container has failed.
    #[error("exit code {code}")]
    Exit {
        /// Its exit code.
        code: i64,
        /// All that it has said.
        output: String,
    },
}

fn doing(doing: &'static str) -> impl FnOnce(bollard::errors::Error) -> Error {
    move |source| Error::Docker { doing, source: Box::new(source) }
}

/// What a node has in common with the control plane of its cluster.
#[derive(Clone, Debug, Default)]
pub struct Template {
    /// Image, by its id: nothing is pulled, and the versions agree.
    pub image: String,
    /// Network of the cluster.
    pub network: String,
    /// `host:port` of the API server on that network.
    pub endpoint: String,
    /// Environment of kind's own (proxies, snapshotter).
    pub env: Vec<String>,
    /// Name space of users, where the daemon maps them.
    pub userns_mode: Option<String>,
    /// Kernel settings of the network name space.
    pub sysctls: Option<HashMap<String, String>>,
}

/// A container of ours.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// Name of the claim that it was made for.
    pub claim: String,
    /// UID of that claim.
    pub uid: String,
    /// Which attempt it was, as the claim's annotation had it.
    pub attempt: String,
    /// Whether it runs (a frozen one does).
    pub running: bool,
    /// Whether its processes are frozen.
    pub frozen: bool,
}

/// The Docker daemon.
#[derive(Clone, Debug)]
pub struct Docker(bollard::Docker);

impl Docker {
    /// Connects to the daemon that `DOCKER_HOST` names, else to the local one.
    pub async fn connect() -> Result<Self, Error> {
        let docker = bollard::Docker::connect_with_defaults().map_err(doing("connecting"))?;
        let docker = docker.with_timeout(Duration::from_secs(TIMEOUT));
        Ok(Self(docker.negotiate_version().await.map_err(doing("asking for its version"))?))
    }

    /// What the nodes of a kind cluster have in common.
    pub async fn template(&self, kind_cluster: &str) -> Result<Template, Error> {
        let labels =
            [format!("{KIND_CLUSTER}={kind_cluster}"), format!("{KIND_ROLE}=control-plane")].to_vec();
        let found = self.list(labels).await?;
        let running = |state| state == Some(ContainerSummaryStateEnum::RUNNING);
        let id = found.into_iter().find(|container| running(container.state)).and_then(|c| c.id);
        let id = id.ok_or_else(|| Error::NoCluster(kind_cluster.to_owned()))?;
        let there = self
            .0
            .inspect_container(&id, None::<InspectContainerOptions>)
            .await
            .map_err(doing("looking at the control plane"))?;
        let networks = there.network_settings.and_then(|settings| settings.networks).unwrap_or_default();
        let host = there.host_config.unwrap_or_default();
        let env = there.config.and_then(|config| config.env).unwrap_or_default();
        let of_kind = |variable: &String| {
            let name = variable.split('=').next().unwrap_or_default();
            name.starts_with("KIND_") || name.to_ascii_lowercase().ends_with("_proxy")
        };
        Ok(Template {
            image: there.image.unwrap_or_default(),
            network: networks.into_keys().next().unwrap_or_default(),
            endpoint: format!("{}:6443", there.name.unwrap_or_default().trim_start_matches('/')),
            env: env.into_iter().filter(of_kind).collect(),
            userns_mode: host.userns_mode.filter(|mode| !mode.is_empty()),
            sysctls: host.sysctls,
        })
    }

    async fn list(&self, labels: Vec<String>) -> Result<Vec<bollard::models::ContainerSummary>, Error> {
        let filters = HashMap::from([("label", labels)]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        self.0.list_containers(Some(options)).await.map_err(doing("listing containers"))
    }

    /// The containers that a cloud has made for a kind cluster; those of one claim, if one is given.
    pub async fn machines(
        &self,
        kind_cluster: &str,
        cloud: &str,
        uid: Option<&str>,
    ) -> Result<Vec<Machine>, Error> {
        let mut labels = vec![format!("{KIND_CLUSTER}={kind_cluster}"), format!("{CLOUD}={cloud}")];
        labels.extend(uid.map(|uid| format!("{CLAIM_UID}={uid}")));
        let found = self.list(labels).await?;
        let machine = |container: bollard::models::ContainerSummary| {
            let name = container.names?.first()?.trim_start_matches('/').to_owned();
            let labels = container.labels?;
            let state = container.state?;
            Some(Machine {
                name,
                claim: labels.get(CLAIM)?.clone(),
                uid: labels.get(CLAIM_UID)?.clone(),
                attempt: labels.get(ATTEMPT)?.clone(),
                frozen: state == ContainerSummaryStateEnum::PAUSED,
                running: matches!(
                    state,
                    ContainerSummaryStateEnum::RUNNING | ContainerSummaryStateEnum::PAUSED
                ),
            })
        };
        Ok(found.into_iter().filter_map(machine).collect())
    }

    /// Creates and starts a container.
    pub async fn start(&self, name: &str, body: ContainerCreateBody) -> Result<(), Error> {
        let options = CreateContainerOptionsBuilder::new().name(name).build();
        self.0.create_container(Some(options), body).await.map_err(doing("creating a container"))?;
        self.0
            .start_container(name, None::<StartContainerOptions>)
            .await
            .map_err(doing("starting a container"))
    }

    /// Waits until a container has booted. Nothing may be executed in it before: a process in its root control group would be
    /// in systemd's way.
    pub async fn booted(&self, name: &str) -> Result<(), Error> {
        let options = LogsOptionsBuilder::new().follow(true).stdout(true).stderr(true).build();
        let mut lines = self.0.logs(name, Some(options));
        let (start, mut said) = (Instant::now(), String::new());
        loop {
            let left = BOOT_PATIENCE.saturating_sub(start.elapsed());
            let why = match tokio::time::timeout(left, lines.next()).await {
                Ok(Some(Ok(line))) => {
                    said += &line.to_string();
                    if said.contains("Reached target") && said.contains("Multi-User System") {
                        return Ok(());
                    }
                    continue;
                }
                Ok(Some(Err(error))) => return Err(doing("reading the log of a container")(error)),
                Ok(None) => "it has ended",
                Err(_) => "it takes too long",
            };
            return Err(Error::Boot {
                name: name.to_owned(),
                why: format!("{why}: {}", last_lines(&said, 5)),
            });
        }
    }

    /// Executes a command in a container and waits for its end. [`Error::Exit`] has all that it said, if it fails.
    pub async fn execute(&self, name: &str, command: Vec<String>) -> Result<String, Error> {
        let options = CreateExecOptions {
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            privileged: Some(true),
            cmd: Some(command),
            ..CreateExecOptions::default()
        };
        let exec = self.0.create_exec(name, options).await.map_err(doing("executing in a container"))?;
        let started = self.0.start_exec(&exec.id, None::<StartExecOptions>).await;
        let mut output = String::new();
        if let StartExecResults::Attached { output: mut parts, .. } =
            started.map_err(doing("executing in a container"))?
        {
            while let Some(part) = parts.next().await {
                output += &part.map_err(doing("reading what a command says"))?.to_string();
            }
        }
        let ended = self.0.inspect_exec(&exec.id).await.map_err(doing("asking how a command ended"))?;
        match ended.exit_code {
            Some(0) => Ok(output),
            code => Err(Error::Exit { code: code.unwrap_or(-1), output }),
        }
    }

    /// Removes a container and its volume, whatever it does. One that is not there is removed.
    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        loop {
            match self.0.remove_container(name, Some(options.clone())).await {
                Ok(()) | Err(bollard::errors::Error::DockerResponseServerError { status_code: 404, .. }) => {
                    return Ok(());
                }
                // its removal is on the way: until it is done the container is there
                Err(bollard::errors::Error::DockerResponseServerError { status_code: 409, .. }) => {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                Err(error) => return Err(doing("removing a container")(error)),
            }
        }
    }

    /// Freezes all processes of a container, or has them go on. One that is so already, or is not there, stays so.
    pub async fn freeze(&self, name: &str, frozen: bool) -> Result<(), Error> {
        let done =
            if frozen { self.0.pause_container(name).await } else { self.0.unpause_container(name).await };
        match done {
            Ok(())
            | Err(bollard::errors::Error::DockerResponseServerError { status_code: 404 | 409, .. }) => Ok(()),
            Err(error) => Err(doing("freezing a container")(error)),
        }
    }
}

/// The last lines of a text, on one line.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_what_is_told() {
        assert_eq!(last_lines("one\n\n two\r\nthree\n", 2), "two | three");
        assert_eq!(last_lines("one", 5), "one");
        assert_eq!(last_lines("", 5), "");
    }
}
