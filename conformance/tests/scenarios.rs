//! Every scenario file is one test: `cargo nextest run -E 'binary(scenarios)'`.
//!
//! All tests of a run share the planes of their slots; see `test_cluster::lease`. The last process of the run writes the
//! report to `BUFCONF_OUT`, or else to `target/bufconf`.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Result, anyhow, ensure};
use bufconf::{
    catalogue,
    cli::{ClusterKind, DEFAULT_OUT},
    failure::Failure,
    run,
    session::{Ground, Session},
    subject::Subject,
};
use clap::ValueEnum;
use conformance_engine::{applicability::Applicability, scenario::Scenario, waits::Waits};
use conformance_report::model::{Outcome, ScenarioResult};
use libtest_mimic::{Arguments, Trial};
use test_cluster::{binaries, owner};
use tokio_util::sync::CancellationToken;

const IMPLEMENTATION: &str = "reference";

fn main() -> Result<ExitCode> {
    owner::die_with_parent()?;
    let arguments = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    let catalogue = catalogue::load_folder(&root).map_err(error)?;
    let ground = ground()?;
    let subject = Subject::load(IMPLEMENTATION, Some(&catalogue)).map_err(error)?;
    let subject = subject.with_most_nodes(ground.most_nodes());
    let kind = ground.kind();
    let trials = catalogue
        .scenarios()
        .iter()
        .map(|scenario| {
            let applicability = scenario.applicability(&subject.implementation, kind, run::today());
            let scenario = scenario.clone();
            let name = scenario.file.trim_end_matches(".yaml").to_owned();
            let test = move || Ok(test(&scenario).map_err(|error| format!("{error:#}"))?);
            Trial::test(name, test).with_ignored_flag(applicability != Applicability::Run)
        })
        .collect();
    Ok(libtest_mimic::run(&arguments, trials).exit_code())
}

fn error(failure: Failure) -> anyhow::Error {
    failure.error
}

/// Where to run: `BUFCONF_CLUSTER`, embedded unless it says otherwise.
fn ground() -> Result<Ground> {
    let cluster = std::env::var("BUFCONF_CLUSTER").unwrap_or_else(|_| "embedded".to_owned());
    let cluster =
        ClusterKind::from_str(&cluster, false).map_err(|error| anyhow!("BUFCONF_CLUSTER: {error}"))?;
    let kubeconfig = std::env::var_os("KUBECONFIG").map(Into::into);
    let program = env!("CARGO_BIN_EXE_bufconf").into();
    let image = std::env::var("BUFCONF_KIND_IMAGE").ok();
    Session::ground(cluster, binaries::DEFAULT_MINOR, None, kubeconfig, false, program, image).map_err(error)
}

fn test(scenario: &Scenario) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let results = runtime.block_on(results(scenario))?;
    ensure!(!results.is_empty(), "the scenario has no result");
    let bad: Vec<String> = results
        .iter()
        .filter(|result| result.outcome != Outcome::Passed)
        .map(told)
        .collect::<Result<_, _>>()?;
    ensure!(bad.is_empty(), bad.join("\n"));
    Ok(())
}

async fn results(scenario: &Scenario) -> Result<Vec<ScenarioResult>> {
    let ground = ground()?;
    let subject = Subject::load(IMPLEMENTATION, None).map_err(error)?;
    let subject = subject.with_most_nodes(ground.most_nodes());
    let waits = Waits::new(ground.kind(), subject.implementation.dialect);
    let session = Session::join(ground, subject, waits).map_err(error)?;
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    let catalogue = workspace.join("scenarios");
    let out = std::env::var_os("BUFCONF_OUT").map_or_else(|| workspace.join(DEFAULT_OUT), PathBuf::from);
    let request = run::test_request(&session, IMPLEMENTATION, &catalogue, &out).await.map_err(error)?;
    request.store(&session.dir)?;
    let cancel = CancellationToken::new();
    let results = session.run(scenario, &cancel, &|line| eprintln!("{line}")).await.map_err(error)?;
    session.dir.leave(|_| Ok(()))?;
    Ok(results)
}

/// What a reader of the test's output needs to know of a result that is not `passed`.
fn told(result: &ScenarioResult) -> Result<String> {
    let case = result.case.as_deref().map(|case| format!(" [{case}]")).unwrap_or_default();
    let mut text = format!(
        "{} {}{case}: {:?}: {}",
        result.id,
        result.name,
        result.outcome,
        result.reason.as_deref().unwrap_or_default()
    );
    for violation in &result.violations {
        write!(
            text,
            "\n  step {}, row {}\n  wanted: {}\n  observed: {}\n  {}\n{}",
            violation.step,
            violation.req,
            violation.wanted,
            violation.observed,
            violation.history,
            violation.diff.as_deref().unwrap_or_default()
        )?;
    }
    for event in &result.timeline {
        write!(text, "\n  {:>7} ms  {:?}  {}  {}", event.at_ms, event.lane, event.object, event.what)?;
    }
    Ok(text)
}
