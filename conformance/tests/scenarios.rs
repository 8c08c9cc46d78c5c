//! Every scenario file is one test: `cargo nextest run -E 'binary(scenarios)'`.
//!
//! All tests of a run share the planes of their slots; see `test_cluster::lease`.

use std::path::Path;

use bufconf::{
    catalogue,
    cli::ClusterKind,
    run,
    session::{Ground, Session},
    subject::Subject,
};
use clap::ValueEnum;
use conformance_engine::{applicability::Applicability, scenario::Scenario, waits::Waits};
use conformance_report::model::{Outcome, ScenarioResult};
use libtest_mimic::{Arguments, Failed, Trial};
use test_cluster::{binaries, owner};
use tokio_util::sync::CancellationToken;

const IMPLEMENTATION: &str = "reference";

fn main() {
    owner::die_with_parent().expect("watching the test runner");
    let arguments = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    let catalogue = catalogue::load_folder(&root).unwrap_or_else(|failure| panic!("{:#}", failure.error));
    let subject = Subject::load(IMPLEMENTATION, Some(&catalogue))
        .unwrap_or_else(|failure| panic!("{:#}", failure.error));
    let kind = ground().kind();
    let trials = catalogue
        .scenarios()
        .iter()
        .map(|scenario| {
            let applicability = scenario.applicability(&subject.implementation, kind, run::today());
            let scenario = scenario.clone();
            let name = scenario.file.trim_end_matches(".yaml").to_owned();
            Trial::test(name, move || test(&scenario)).with_ignored_flag(applicability != Applicability::Run)
        })
        .collect();
    libtest_mimic::run(&arguments, trials).exit();
}

/// Where to run: `BUFCONF_CLUSTER`, embedded unless it says otherwise.
fn ground() -> Ground {
    let cluster = std::env::var("BUFCONF_CLUSTER").unwrap_or_else(|_| "embedded".to_owned());
    let cluster =
        ClusterKind::from_str(&cluster, false).unwrap_or_else(|error| panic!("BUFCONF_CLUSTER: {error}"));
    let kubeconfig = std::env::var_os("KUBECONFIG").map(Into::into);
    Session::ground(
        cluster,
        binaries::DEFAULT_MINOR,
        None,
        kubeconfig,
        false,
        env!("CARGO_BIN_EXE_bufconf").into(),
    )
    .unwrap_or_else(|failure| panic!("{:#}", failure.error))
}

fn test(scenario: &Scenario) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let results = runtime.block_on(results(scenario))?;
    let bad: Vec<String> =
        results.iter().filter(|result| result.outcome != Outcome::Passed).map(told).collect();
    if results.is_empty() {
        return Err("the scenario has no result".into());
    }
    if bad.is_empty() { Ok(()) } else { Err(bad.join("\n").into()) }
}

async fn results(scenario: &Scenario) -> Result<Vec<ScenarioResult>, Failed> {
    let told = |failure: bufconf::failure::Failure| Failed::from(format!("{:#}", failure.error));
    let subject = Subject::load(IMPLEMENTATION, None).map_err(told)?;
    let ground = ground();
    let waits = Waits::new(ground.kind(), subject.implementation.dialect);
    let session = Session::join(ground, subject, waits).map_err(told)?;
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    run::test_request(
        &session,
        IMPLEMENTATION,
        &workspace.join("scenarios"),
        &workspace.join("target/bufconf"),
    )
    .and_then(|request| request.store(&session.dir))
    .map_err(|error| Failed::from(format!("{error:#}")))?;
    let results =
        session.run(scenario, &CancellationToken::new(), &|line| eprintln!("{line}")).await.map_err(told)?;
    session.dir.leave(|_| Ok(())).map_err(|error| Failed::from(format!("{error:#}")))?;
    Ok(results)
}

/// What a reader of the test's output needs to know of a result that is not `passed`.
fn told(result: &ScenarioResult) -> String {
    let case = result.case.as_deref().map(|case| format!(" [{case}]")).unwrap_or_default();
    let mut text = format!(
        "{} {}{case}: {:?}: {}",
        result.id,
        result.name,
        result.outcome,
        result.reason.as_deref().unwrap_or_default()
    );
    for violation in &result.violations {
        text += &format!(
            "\n  step {}, row {}\n  wanted: {}\n  observed: {}\n  {}\n{}",
            violation.step,
            violation.req,
            violation.wanted,
            violation.observed,
            violation.history,
            violation.diff.as_deref().unwrap_or_default()
        );
    }
    for event in &result.timeline {
        text += &format!("\n  {:>7} ms  {:?}  {}  {}", event.at_ms, event.lane, event.object, event.what);
    }
    text
}
