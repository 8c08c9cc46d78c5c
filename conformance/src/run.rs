//! `bufconf run`: selection, planes, scenarios, report.

use std::{
    collections::BTreeSet,
    fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Mutex,
};

use anyhow::{Context, Result, anyhow};
use conformance_engine::{
    applicability::Applicability,
    catalogue::{Catalogue, SelectError, Selection},
    implementation::Implementation,
    scenario::Scenario,
    waits::Waits,
};
use conformance_report::{
    Fragment,
    merge::{self, Header},
    model::{
        Environment, Implementation as Tested, Incident, IncidentKind, Leak, Outcome, Report, ScenarioResult,
        Scope, Suite,
    },
};
use futures::{StreamExt, stream};
use jiff::{Timestamp, civil::Date, tz::TimeZone};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::{
    catalogue,
    cli::{ClusterKind, RunArgs},
    failure::{Failure, USAGE},
    output,
    run_dir::RunDir,
    session::{self, Ground, Session},
    signals,
    subject::Subject,
};

/// What a run was asked for: enough for any of its processes to make the report.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Id of the run.
    pub run_id: String,
    /// Start, RFC 3339.
    pub started_at: Timestamp,
    /// Kind of cluster.
    pub cluster: String,
    /// Version of Kubernetes, once a plane has said it.
    pub kubernetes: String,
    /// Planes side by side.
    pub planes: usize,
    /// Implementation, by name or path.
    pub implementation: String,
    /// Folder of the catalogue on disk; the built-in one when absent.
    pub catalogue: Option<PathBuf>,
    /// Folder of users' own scenarios.
    pub own_scenarios: Option<PathBuf>,
    /// Scales all patience.
    pub time_factor: f64,
    /// Waits that the user set, as `name=duration`.
    pub wait_overrides: Vec<String>,
    /// Ids that were selected; all when absent.
    pub selected: Option<BTreeSet<String>>,
    /// Folder of the report.
    pub out: PathBuf,
}

impl Request {
    /// The whole catalogue that is built in, with the waits of the table.
    fn new(session: &Session, implementation: &str, kubernetes: String, out: &Path) -> Self {
        Self {
            run_id: session.run_id(),
            started_at: Timestamp::now(),
            cluster: session.ground.name().to_owned(),
            kubernetes,
            planes: session.ground.planes().get(),
            implementation: implementation.to_owned(),
            catalogue: None,
            own_scenarios: None,
            time_factor: 1.0,
            wait_overrides: Vec::new(),
            selected: None,
            out: out.to_owned(),
        }
    }

    /// Stores it in the run's folder, unless another process of the run has done so.
    pub fn store(&self, dir: &RunDir) -> Result<()> {
        if !dir.request().exists() {
            conformance_report::write_atomically(&dir.request(), &serde_json::to_string_pretty(self)?)?;
        }
        Ok(())
    }

    fn catalogue(&self) -> Result<Catalogue, Failure> {
        match &self.catalogue {
            Some(folder) => catalogue::load_folder(folder),
            None => catalogue::load(self.own_scenarios.as_deref()),
        }
    }
}

/// Runs what was asked for; returns the exit code of the report.
pub async fn execute(args: RunArgs) -> Result<u8, Failure> {
    let catalogue = catalogue::load(args.scenarios_dir.as_deref())?;
    let implementation = match (&args.implementation, args.cluster) {
        (Some(name), _) => name.as_str(),
        (None, ClusterKind::Embedded | ClusterKind::Kind) => "reference",
        // Somebody else's autoscaler must not be judged under the reference's name.
        (None, ClusterKind::Existing) => {
            let error = anyhow!(
                "--cluster existing needs --implementation FILE, or `reference` if that is what runs there"
            );
            return Err(Failure::usage(error));
        }
    };
    let subject = Subject::load(implementation, Some(&catalogue))?;
    let selection = Selection { scenarios: args.scenarios.clone(), ..Selection::default() };
    let selected = catalogue.select(&selection).map_err(selection_failure)?;
    let program = session::program()?;
    let ground = Session::ground(
        args.cluster,
        &args.kubernetes,
        args.planes,
        args.kubeconfig.clone(),
        args.disposable,
        program,
        args.kind_image.clone(),
    )?;
    let subject = subject.with_most_nodes(ground.most_nodes());
    let waits = waits(ground.kind(), &subject.implementation, args.time_factor, &args.waits)?;
    let run: Vec<&Scenario> = selected
        .iter()
        .copied()
        .filter(|scenario| {
            scenario.applicability(&subject.implementation, ground.kind(), today()) == Applicability::Run
        })
        .collect();
    if run.is_empty() {
        return Err(Failure::nothing("no scenario was selected that can run here"));
    }
    if args.dry_run {
        for scenario in run {
            println!("{} {} ({})", scenario.id, scenario.name, scenario.file);
        }
        return Ok(0);
    }
    fs::create_dir_all(&args.out)
        .with_context(|| format!("creating {}", args.out.display()))
        .map_err(Failure::usage)?;
    if args.cluster != ClusterKind::Existing {
        subject.prepare()?;
    }

    let session = Session::join(ground, subject, waits)?;
    let mut request = Request {
        own_scenarios: args.scenarios_dir.clone(),
        time_factor: args.time_factor,
        wait_overrides: args.waits.clone(),
        // Also those that can't run here: the report says why, and the verdict is incomplete without them.
        selected: (!args.scenarios.is_empty())
            .then(|| selected.iter().map(|scenario| scenario.id.clone()).collect()),
        ..Request::new(&session, implementation, args.kubernetes.clone(), &args.out)
    };
    let cancel = CancellationToken::new();
    let ended = signals::watch(&cancel, args.deadline);
    let (mut incidents, mut leaks) = (Vec::new(), Vec::new());
    match session.kubernetes_version(&|line| eprintln!("{line}")).await {
        Ok(version) => {
            request.kubernetes = version;
            incidents = scenarios(&session, &run, args.jobs, &cancel).await;
            match session.leaks().await {
                Ok(found) => leaks = found,
                Err(failure) => incidents.push(incident(&failure)),
            }
        }
        // A kubeconfig or a cluster that must not be used is the user's to change; there is nothing to report yet.
        Err(failure) if failure.code == USAGE => {
            session.dir.leave(|_| Ok(())).map_err(Failure::environment)?;
            return Err(failure);
        }
        // The report says so too, and every scenario in it is `not run`.
        Err(failure) => incidents.push(incident(&failure)),
    }
    incidents.extend(ended.incident());
    let implementation = &session.subject.implementation;
    let report =
        report(&request, &catalogue, implementation, &session.waits, &session.dir, incidents, leaks)?;
    let environment = report.incidents.iter().find(|incident| incident.kind == IncidentKind::Environment);
    if let Some(incident) = environment {
        eprintln!("error: {}", incident.message);
    }
    output::write(&report, &args.out).map_err(Failure::environment)?;
    output::keep_join_logs(&session.dir.joins(), &args.out).map_err(Failure::environment)?;
    output::print(&report, &args.out).map_err(Failure::environment)?;
    let code = report.exit_code;
    if args.cluster != ClusterKind::Existing {
        tokio::task::block_in_place(|| session.stop_planes())?;
    }
    session.dir.leave(|_| Ok(())).map_err(Failure::environment)?;
    Ok(code)
}

/// The waits in force.
fn waits(
    kind: conformance_engine::waits::ClusterKind,
    implementation: &Implementation,
    time_factor: f64,
    overrides: &[String],
) -> Result<Waits, Failure> {
    let waits =
        Waits::new(kind, implementation.dialect).with_time_factor(time_factor).map_err(Failure::usage)?;
    overrides.iter().try_fold(waits, |waits, setting| waits.with_override(setting).map_err(Failure::usage))
}

/// Runs the scenarios, `jobs` at a time; returns what befell the run.
async fn scenarios(
    session: &Session,
    run: &[&Scenario],
    jobs: NonZeroUsize,
    cancel: &CancellationToken,
) -> Vec<Incident> {
    let progress = output::Progress::new(run.len());
    let incidents = Mutex::new(Vec::new());
    stream::iter(run)
        .for_each_concurrent(jobs.get(), async |scenario| {
            if cancel.is_cancelled() {
                return;
            }
            match session.run(scenario, cancel, &|line| progress.say(line)).await {
                Ok(results) => progress.done(&results),
                Err(failure) => {
                    progress.say(&format!("{}: {:#}", scenario.name, failure.error));
                    if let Ok(mut incidents) = incidents.lock() {
                        incidents.push(incident(&failure));
                    }
                    // Without a cluster nothing that follows can run either.
                    cancel.cancel();
                }
            }
        })
        .await;
    progress.finish();
    incidents.into_inner().unwrap_or_default()
}

fn incident(failure: &Failure) -> Incident {
    Incident { kind: IncidentKind::Environment, message: format!("{:#}", failure.error) }
}

/// The report of a run whose entries are in its folder; what the last process of a test run writes.
pub fn report_of_entries(dir: &RunDir) -> Result<()> {
    if !dir.request().exists() {
        // Nobody asked for a report: the plane served something else.
        return Ok(());
    }
    let request: Request = serde_json::from_str(&fs::read_to_string(dir.request())?)?;
    let told = |failure: Failure| failure.error;
    let catalogue = request.catalogue().map_err(told)?;
    let kind = match request.cluster.as_str() {
        "existing" => conformance_engine::waits::ClusterKind::Existing,
        "kind" => conformance_engine::waits::ClusterKind::Kind,
        _ => conformance_engine::waits::ClusterKind::Embedded,
    };
    let subject = Subject::load(&request.implementation, Some(&catalogue)).map_err(told)?;
    let subject = subject.with_most_nodes(session::most_nodes(kind));
    let implementation = &subject.implementation;
    let waits = waits(kind, implementation, request.time_factor, &request.wait_overrides).map_err(told)?;
    let report =
        report(&request, &catalogue, implementation, &waits, dir, Vec::new(), Vec::new()).map_err(told)?;
    output::write(&report, &request.out)?;
    output::keep_join_logs(&dir.joins(), &request.out)
}

/// Puts the entries together.
fn report(
    request: &Request,
    catalogue: &Catalogue,
    implementation: &Implementation,
    waits: &Waits,
    dir: &RunDir,
    mut incidents: Vec<Incident>,
    leaks: Vec<Leak>,
) -> Result<Report, Failure> {
    let collected = Fragment::collect(&dir.entries()).map_err(Failure::environment)?;
    incidents.extend(collected.damaged);
    let plan = catalogue
        .scenarios()
        .iter()
        .flat_map(|scenario| planned(scenario, implementation, waits.cluster(), request.selected.as_ref()))
        .collect();
    let header = Header {
        run_id: request.run_id.clone(),
        started_at: request.started_at.to_string(),
        finished_at: Timestamp::now().to_string(),
        scope: if request.selected.is_some() { Scope::Selection } else { Scope::Full },
        suite: Suite {
            name: "bufconf".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            catalogue_hash: catalogue.hash().to_owned(),
        },
        implementation: tested(implementation),
        environment: Environment {
            cluster: request.cluster.clone(),
            kubernetes_version: request.kubernetes.clone(),
            planes: request.planes,
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
        },
        waits: waits.settings(),
        leaks,
        incidents,
    };
    Ok(merge::merge(header, plan, collected.fragments))
}

/// The entries of a scenario as they stand before it runs.
fn planned(
    scenario: &Scenario,
    implementation: &Implementation,
    kind: conformance_engine::waits::ClusterKind,
    selected: Option<&BTreeSet<String>>,
) -> Vec<ScenarioResult> {
    let (outcome, reason) = match scenario.applicability(implementation, kind, today()) {
        _ if selected.is_some_and(|ids| !ids.contains(&scenario.id)) => {
            (Outcome::Excluded, Some("not selected".to_owned()))
        }
        Applicability::Run => (Outcome::NotRun, Some("the run ended before its turn".to_owned())),
        Applicability::NotApplicable(why) => (Outcome::NotApplicable, Some(why)),
        Applicability::CouldNotRun(why) => (Outcome::CouldNotRun, Some(why)),
        Applicability::Exempted(why) => (Outcome::Exempted, Some(why)),
    };
    conformance_engine::run::planned(scenario, outcome, reason.as_deref())
}

/// A selection that names what is not there is wrong; one that matches nothing is only empty.
#[must_use]
pub fn selection_failure(error: SelectError) -> Failure {
    match error {
        SelectError::Unknown { .. } => Failure::usage(error),
        SelectError::Nothing => Failure::nothing(error),
    }
}

/// Today, by which exemptions expire.
#[must_use]
pub fn today() -> Date {
    Timestamp::now().to_zoned(TimeZone::UTC).date()
}

fn tested(implementation: &Implementation) -> Tested {
    let identity = &implementation.identity;
    Tested {
        organization: identity.organization.clone(),
        project: identity.project.clone(),
        url: identity.url.clone(),
        version: identity.version.clone(),
        dialect: implementation.dialect.map(|dialect| dialect.name().to_owned()),
        profiles: implementation.profiles.clone(),
        features: implementation.features.iter().map(ToString::to_string).collect(),
    }
}

/// The request of a test run, whose processes know each other only by the run's key.
pub async fn test_request(
    session: &Session,
    implementation: &str,
    catalogue: &Path,
    out: &Path,
) -> Result<Request, Failure> {
    let kubernetes = match &session.ground {
        // No plane is started only to be asked.
        Ground::Embedded { kubernetes, .. } | Ground::Kind { kubernetes, .. } => {
            format!("v{}", test_cluster::binaries::release(kubernetes)?.kubernetes)
        }
        Ground::Existing { .. } => session.kubernetes_version(&|_| {}).await?,
    };
    let request = Request::new(session, implementation, kubernetes, out);
    Ok(Request { catalogue: Some(catalogue.to_owned()), ..request })
}
