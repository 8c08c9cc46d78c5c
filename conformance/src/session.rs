//! One scenario on the right plane: lease, plane, run, entry.

use std::{num::NonZeroUsize, path::PathBuf};

use anyhow::{Context, Result, anyhow};
use conformance_engine::{
    run::{Runner, outcome::Failure as NotJudged, planned},
    scenario::{Isolation, Scenario, Settings},
    waits::{ClusterKind, Waits},
};
use conformance_report::{
    Fragment,
    model::{Leak, Outcome, ScenarioResult},
};
use jiff::Timestamp;
use kube::Client;
use test_cluster::{
    KindConfig,
    binaries::Sources,
    clusters::{self, Running},
    existing::{self, Consent},
    lease::{self, Slots},
    owner,
};
use tokio_util::sync::CancellationToken;

use crate::{cli, failure::Failure, run_dir::RunDir, subject::Subject};

/// Where scenarios run.
#[derive(Clone, Debug)]
pub enum Ground {
    /// Planes of our own, made as they are needed.
    Embedded {
        /// Kubernetes minor.
        kubernetes: String,
        /// Planes side by side.
        planes: NonZeroUsize,
        /// This program: supervisor, cloud and controller.
        program: PathBuf,
    },
    /// Kind clusters of our own.
    Kind {
        /// Kubernetes minor.
        kubernetes: String,
        /// Clusters side by side.
        planes: NonZeroUsize,
        /// This program: supervisor, cloud and controller.
        program: PathBuf,
        /// Node image; the one that fits when absent.
        image: Option<String>,
    },
    /// One cluster that somebody else made.
    Existing {
        /// Its kubeconfig; by the environment when absent.
        kubeconfig: Option<PathBuf>,
        /// Whether it may be wrecked without a marker.
        consent: Consent,
    },
}

impl Ground {
    /// The kind of cluster, for the wait table.
    #[must_use]
    pub fn kind(&self) -> ClusterKind {
        match self {
            Self::Embedded { .. } => ClusterKind::Embedded,
            Self::Kind { .. } => ClusterKind::Kind,
            Self::Existing { .. } => ClusterKind::Existing,
        }
    }

    /// Planes side by side.
    #[must_use]
    pub fn planes(&self) -> NonZeroUsize {
        match self {
            Self::Embedded { planes, .. } | Self::Kind { planes, .. } => *planes,
            Self::Existing { .. } => NonZeroUsize::MIN,
        }
    }

    /// Name of the kind as users write it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Embedded { .. } => "embedded",
            Self::Kind { .. } => "kind",
            Self::Existing { .. } => "existing",
        }
    }

    /// The most nodes that there can be, where the machine sets a limit.
    #[must_use]
    pub fn most_nodes(&self) -> Option<u32> {
        most_nodes(self.kind())
    }
}

/// The most nodes that there can be on a kind of cluster, where the machine sets a limit.
#[must_use]
pub fn most_nodes(kind: ClusterKind) -> Option<u32> {
    (kind == ClusterKind::Kind).then(test_cluster::kind::most_nodes)
}

/// What the user asked for, as far as each process of a run must know it.
#[derive(Debug)]
pub struct Session {
    /// Where to run.
    pub ground: Ground,
    /// What is tested.
    pub subject: Subject,
    /// The waits in force.
    pub waits: Waits,
    /// The run's folder.
    pub dir: RunDir,
    /// The run's key: the same in all its processes.
    pub key: String,
    /// When this process joined the run.
    pub started: Timestamp,
}

/// A plane that is ready for a scenario.
struct Plane {
    client: Client,
    kubeconfig: Option<PathBuf>,
    running: Option<Running>,
}

impl Plane {
    /// Waits until it is gone with its supervisor. That of somebody else's cluster is not ours to watch.
    async fn lost(&self) -> Result<(), test_cluster::Error> {
        let Some(running) = &self.running else { return std::future::pending().await };
        let kind = async {
            match running.kind()? {
                Some(name) => Err(test_cluster::kind::lost(&name).await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = running.ended() => ended,
            lost = kind => lost,
        }
    }
}

impl Session {
    /// The cluster that `--cluster` and its companions name.
    pub fn ground(
        cluster: cli::ClusterKind,
        kubernetes: &str,
        planes: Option<usize>,
        kubeconfig: Option<PathBuf>,
        disposable: bool,
        program: PathBuf,
        kind_image: Option<String>,
    ) -> Result<Ground, Failure> {
        let planes = planes.map(|count| {
            NonZeroUsize::new(count).ok_or_else(|| Failure::usage(anyhow!("--planes must be at least 1")))
        });
        let planes = planes.transpose()?;
        Ok(match cluster {
            cli::ClusterKind::Embedded => {
                test_cluster::binaries::release(kubernetes)?;
                let planes = planes.unwrap_or_else(lease::slots);
                Ground::Embedded { kubernetes: kubernetes.to_owned(), planes, program }
            }
            cli::ClusterKind::Kind => {
                test_cluster::binaries::release(kubernetes)?;
                Ground::Kind {
                    kubernetes: kubernetes.to_owned(),
                    planes: planes.unwrap_or(NonZeroUsize::MIN),
                    program,
                    image: kind_image,
                }
            }
            cli::ClusterKind::Existing => Ground::Existing {
                kubeconfig,
                consent: if disposable { Consent::Given } else { Consent::Marker },
            },
        })
    }

    /// Joins the run of this process's owner (nextest, or this process itself).
    pub fn join(ground: Ground, subject: Subject, waits: Waits) -> Result<Self, Failure> {
        let subject = match &ground {
            Ground::Embedded { program, .. } | Ground::Kind { program, .. } => subject.with_program(program),
            Ground::Existing { .. } => subject.with_program(&self::program()?),
        };
        let key = owner::run_key();
        let dir = RunDir::join(&key).map_err(Failure::environment)?;
        Ok(Self { ground, subject, waits, dir, key, started: Timestamp::now() })
    }

    /// The short id of the run, part of the names of what it creates.
    #[must_use]
    pub fn run_id(&self) -> String {
        short(&self.key)
    }

    /// Waits for its turn, runs a scenario and stores the entries. `progress` hears of each long step.
    pub async fn run(
        &self,
        scenario: &Scenario,
        cancel: &CancellationToken,
        progress: &(dyn Fn(&str) + Sync),
    ) -> Result<Vec<ScenarioResult>, Failure> {
        let isolation = self.isolation(scenario);
        let slots = Slots::new(&self.dir.slots(), self.ground.planes())?;
        let lease = tokio::select! {
            lease = slots.acquire(isolation) => lease?,
            () = cancel.cancelled() => return Ok(Vec::new()),
        };
        let own = scenario.needs.isolation == Isolation::Own;
        let name = if own {
            format!("own-{}", scenario.id.to_lowercase())
        } else {
            format!("slot-{}", lease.slot())
        };
        let plane = self.plane(&name, scenario.needs.settings, progress).await?;

        let runner = self.runner(&plane);
        let results = tokio::select! {
            results = runner.run(scenario, cancel) => results,
            // Nothing is known then, and nothing can be left. A scenario after this one gets a new plane.
            lost = plane.lost() => {
                lost?;
                let reason = "the supervisor of its cluster died, and with it the cluster";
                planned(scenario, Outcome::Unknown, Some(reason))
            }
        };
        if own && plane.running.is_some() {
            let planes = self.dir.planes();
            tokio::task::spawn_blocking(move || clusters::stop(&planes, &name))
                .await
                .map_err(Failure::environment)??;
        }
        Fragment { run_id: self.run_id(), results: results.clone() }
            .write(&self.dir.entries(), &scenario.id)
            .map_err(Failure::environment)?;
        Ok(results)
    }

    fn runner(&self, plane: &Plane) -> Runner {
        Runner::new(
            plane.client.clone(),
            self.subject.implementation.clone(),
            self.waits.clone(),
            &self.run_id(),
            self.started,
            plane.kubeconfig.clone(),
        )
    }

    /// What the run has left on an existing cluster, after it had time to go. Planes of our own go as a whole.
    pub async fn leaks(&self) -> Result<Vec<Leak>, Failure> {
        if !matches!(self.ground, Ground::Existing { .. }) {
            return Ok(Vec::new());
        }
        let plane = self.plane("existing", Settings::default(), &|_| {}).await?;
        self.runner(&plane).leftovers().await.map_err(|why| match why {
            NotJudged::Broken(why) | NotJudged::Unmet { wanted: why, .. } => {
                Failure::environment(anyhow!(why))
            }
        })
    }

    /// How much company a scenario bears here: an implementation that is not safe side by side gets everything quiet.
    fn isolation(&self, scenario: &Scenario) -> lease::Isolation {
        match scenario.needs.isolation {
            Isolation::Shared if self.subject.implementation.parallel_safe => lease::Isolation::Shared,
            Isolation::Shared | Isolation::Quiet => lease::Isolation::Quiet,
            Isolation::Own => lease::Isolation::Own,
        }
    }

    /// The plane of this name, started if it is not up.
    async fn plane(
        &self,
        name: &str,
        settings: Settings,
        progress: &(dyn Fn(&str) + Sync),
    ) -> Result<Plane, Failure> {
        match &self.ground {
            Ground::Existing { kubeconfig, consent } => {
                let client = existing::connect(kubeconfig.as_deref(), *consent).await?;
                preflight(&client).await?;
                Ok(Plane { client, kubeconfig: kubeconfig.clone(), running: None })
            }
            Ground::Embedded { kubernetes, program, .. } | Ground::Kind { kubernetes, program, .. } => {
                let mut config =
                    self.subject.serve_config(program, kubernetes, settings, Some(owner::owner_pid()))?;
                if let Ground::Kind { image, .. } = &self.ground {
                    // whoever shares the daemon may have our process ids and folders
                    let unique = short(&format!("{}-{}", std::process::id(), Timestamp::now()));
                    config.kind = Some(KindConfig {
                        name: format!("bufconf-{}-{unique}-{name}", self.run_id()),
                        adopt: false,
                        image: image.clone(),
                        join_logs: Some(self.dir.joins()),
                    });
                }
                let sources = Sources::from_env()?;
                let root = self.dir.planes();
                // Blocks for seconds; the scenarios that run meanwhile have other threads.
                let running = tokio::task::block_in_place(|| {
                    clusters::start(&root, name, &config, program, &sources, &progress)
                })?;
                let kubeconfig = running.kubeconfig().to_owned();
                let client = buffer_client::connect(Some(&kubeconfig)).await.map_err(Failure::environment)?;
                self.subject.install(&client, &kubeconfig).await?;
                preflight(&client).await?;
                Ok(Plane { client, kubeconfig: Some(kubeconfig), running: Some(running) })
            }
        }
    }

    /// The version that the API server of the first plane, or of the existing cluster, reports.
    pub async fn kubernetes_version(&self, progress: &(dyn Fn(&str) + Sync)) -> Result<String, Failure> {
        let plane = self.plane("slot-0", Settings::default(), progress).await?;
        let version = plane.client.apiserver_version().await.context("asking for the version");
        Ok(version.map_err(Failure::environment)?.git_version)
    }

    /// Stops all planes of the run.
    pub fn stop_planes(&self) -> Result<(), Failure> {
        let root = self.dir.planes();
        for (name, _) in clusters::list(&root)? {
            clusters::stop(&root, &name)?;
        }
        Ok(())
    }
}

/// Five characters of a key, letters and digits of lower case.
fn short(key: &str) -> String {
    // FNV-1a: spreads keys that differ in one digit, and is the same in all processes.
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{:05x}", hash & 0xf_ffff)
}

/// One clear finding in place of a red test for each scenario: the API must be served at all.
async fn preflight(client: &Client) -> Result<(), Failure> {
    const GROUP_VERSION: &str = "autoscaling.x-k8s.io/v1beta1";
    let served = match client.list_api_group_resources(GROUP_VERSION).await {
        Ok(list) => list.resources.iter().any(|resource| resource.name == "capacitybuffers"),
        Err(kube::Error::Api(status)) if status.code == 404 => false,
        Err(error) => {
            let error = anyhow::Error::new(error).context("asking what the cluster serves");
            return Err(Failure::environment(error));
        }
    };
    if served {
        return Ok(());
    }
    Err(Failure::environment(anyhow!(
        "the cluster does not serve capacitybuffers of {GROUP_VERSION}: install the CRD and the implementation first"
    )))
}

/// The path of this program.
pub fn program() -> Result<PathBuf, Failure> {
    std::env::current_exe().context("finding this program").map_err(Failure::environment)
}
