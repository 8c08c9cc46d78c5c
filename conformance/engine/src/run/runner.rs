//! Runs scenarios: one result a case, whatever happens.

use std::{
    any::Any,
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use conformance_report::model::{Lane, Leak, Outcome, ScenarioResult, StepOutcome, StepResult};
use jiff::Timestamp;
use kube::Client;
use serde_json::json;
use tokio::{sync::Mutex, task::JoinError};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    capacity::target,
    cleanup::clean_up,
    cluster::Cluster,
    context::{Context, Record, Shared},
    hooks,
    outcome::{Failure, conclude, judge},
    pool::{self, Acquired, Slots},
    steps,
    wait::{Unmet, eventually},
    watch::Watches,
    world::{Key, Scope, State, Watched, World, millis},
};
use crate::{
    implementation::{Hook, Implementation, Pool, Supply},
    scenario::{Case, Origin, Scenario, Step, Vars},
    waits::{Wait, Waits},
};

/// Runs scenarios against one cluster and its subject.
///
/// Scenarios can run side by side on clones of one runner; which of them may is the caller's to decide, by their isolation.
#[derive(Clone)]
pub struct Runner {
    shared: Arc<Shared>,
    run: String,
    started: Timestamp,
    slots: Slots,
    cases: Arc<AtomicU32>,
}

/// What is known of a case before it runs.
struct Plan<'a> {
    scenario: &'a Scenario,
    case: Option<&'a Case>,
    started: Timestamp,
}

impl Runner {
    /// A runner for the cluster behind `client`.
    ///
    /// `run` is the id of the run: a few lower-case letters and digits, part of the names of what is created. `started` is when
    /// the run began, the zero of `startedMs`. Hooks get `kubeconfig`, a path, as `KUBECONFIG`.
    #[must_use]
    pub fn new(
        client: Client,
        implementation: Implementation,
        waits: Waits,
        run: &str,
        started: Timestamp,
        kubeconfig: Option<PathBuf>,
    ) -> Self {
        let cluster = Arc::new(Cluster::new(client));
        Self {
            shared: Arc::new(Shared { cluster, implementation, waits, kubeconfig }),
            run: run.to_owned(),
            started,
            slots: Slots::default(),
            cases: Arc::default(),
        }
    }

    /// Runs a scenario and gives one result a case, or one where it has none.
    ///
    /// Never fails and never panics: what goes wrong is in the results. Everything that was created is removed again, also after
    /// `cancel`; that takes at most a few times the patience of `cleanup`. Cases that `cancel` kept from starting are *not-run*.
    pub async fn run(&self, scenario: &Scenario, cancel: &CancellationToken) -> Vec<ScenarioResult> {
        let cases = scenario.cases.iter().map(Some);
        let cases: Vec<_> = if scenario.cases.is_empty() { vec![None] } else { cases.collect() };
        let mut results = Vec::with_capacity(cases.len());
        for case in cases {
            let plan = Plan { scenario, case, started: Timestamp::now() };
            results.push(if cancel.is_cancelled() {
                let reason = Some("the run was interrupted before".to_owned());
                self.result(&plan, Outcome::NotRun, reason)
            } else {
                self.run_case(&plan, cancel).await
            });
        }
        results
    }

    async fn run_case(&self, plan: &Plan<'_>, cancel: &CancellationToken) -> ScenarioResult {
        let scenario = plan.scenario;
        let id = scenario.id.to_lowercase();
        let number = self.cases.fetch_add(1, Ordering::Relaxed) + 1;
        let namespace = format!("cb-{}-{}-{number}", self.run, id.strip_prefix("cb-").unwrap_or(&id));

        let kind = if scenario.needs.wants_pool() {
            match self.shared.implementation.pool_for(&scenario.needs) {
                Ok(kind) => Some(kind),
                Err(lacks) => return self.result(plan, Outcome::CouldNotRun, Some(lacks)),
            }
        } else {
            None
        };
        let acquired = match kind {
            None => None,
            Some(kind) => tokio::select! {
                acquired = pool::acquire(kind, &self.slots, &namespace) => Some(acquired),
                () = cancel.cancelled() => {
                    return self.result(plan, Outcome::NotRun, Some("the run was interrupted before".to_owned()));
                }
            },
        };
        let mut vars = Vars::for_scenario(&self.run, &scenario.id, &namespace)
            .with_implementation(&self.shared.implementation);
        if let Some(Acquired { name, shape, .. }) = &acquired {
            vars = vars.with_pool(name, shape);
        }
        if let Some(case) = plan.case {
            vars = vars.with_case(case);
        }
        let steps = match scenario.bind(&vars) {
            Ok(steps) => steps,
            Err(diagnostic) => return self.result(plan, Outcome::Unknown, Some(diagnostic.to_string())),
        };

        let scope = Scope {
            namespace,
            run: self.run.clone(),
            scenario: id,
            pool: acquired.as_ref().map(|pool| pool.name.clone()),
        };
        let world = World::new(scope.clone());
        let watches = match Watches::start(Arc::clone(&self.shared.cluster), world.clone()).await {
            Ok(watches) => watches,
            Err(error) => return self.result(plan, Outcome::Unknown, Some(error.detail())),
        };
        let record = Record::default();
        let context = Arc::new(Mutex::new(Context {
            shared: Arc::clone(&self.shared),
            world: world.clone(),
            scope,
            isolation: scenario.needs.isolation,
            record: record.clone(),
            marks: BTreeMap::new(),
            watches,
            settled: false,
        }));

        let script = Script { scenario: scenario.clone(), vars, steps };
        let body = follow(Arc::clone(&context), kind.cloned(), script);
        supervise(body, &record, cancel).await;
        let created_pool = kind.is_some_and(|kind| matches!(kind.supply, Supply::Create(_)));
        let health = if cancel.is_cancelled() { None } else { self.health(&record).await };
        let cleaned = tokio::spawn(async move { clean_up(&mut *context.lock().await, created_pool).await });
        let leaks = match cleaned.await {
            Ok(leaks) => leaks,
            Err(error) => {
                record.lock().unknown.get_or_insert_with(|| format!("the clean-up failed: {error}"));
                Vec::new()
            }
        };

        let progress = record.lock().clone();
        let (outcome, reason) = conclude(&progress.violations, progress.unknown.as_deref());
        let reason = match (reason, health) {
            (Some(reason), Some(health)) => Some(format!("{reason}; {health}")),
            (reason, _) => reason,
        };
        ScenarioResult {
            steps: with_unreached(scenario, progress.steps),
            violations: progress.violations,
            timeline: world.read(|state| state.timeline().to_vec()),
            leaks,
            ..self.result(plan, outcome, reason)
        }
    }

    /// After a failure: whether the subject still lives, if there is a way to ask.
    async fn health(&self, record: &Record) -> Option<String> {
        let failed = {
            let progress = record.lock();
            !progress.violations.is_empty() || progress.unknown.is_some()
        };
        if !failed {
            return None;
        }
        match hooks::run(&self.shared, Hook::Health, None).await? {
            Ok(()) => None,
            Err(why) => Some(format!("the subject is dead: {why}")),
        }
    }

    /// The result of a case as far as it is known without its steps.
    fn result(&self, plan: &Plan<'_>, outcome: Outcome, reason: Option<String>) -> ScenarioResult {
        ScenarioResult {
            started_ms: between(self.started, plan.started),
            duration_ms: between(plan.started, Timestamp::now()),
            ..blank(plan.scenario, plan.case, outcome, reason)
        }
    }

    /// Waits until the namespaces of the run are gone, at most for the patience of a clean-up, and tells which are not.
    ///
    /// For the end of a run: the cluster takes some seconds to remove a namespace, and no scenario waits for that.
    pub async fn leftovers(&self) -> Result<Vec<Leak>, Failure> {
        let scope = Scope { run: self.run.clone(), ..Scope::default() };
        let world = World::new(scope);
        let watched = Watched { api_version: "v1".to_owned(), kind: "Namespace".to_owned(), namespace: None };
        let _watches = Watches::only(Arc::clone(&self.shared.cluster), world.clone(), watched).await?;
        let ours = |state: &State| -> Vec<Leak> {
            let label = |object: &serde_json::Value, name: &str| {
                object["metadata"]["labels"][name].as_str().map(str::to_owned)
            };
            let namespaces = state.of_kind("Namespace");
            let ours = namespaces
                .filter(|(_, object)| label(object, buffer_api::labels::RUN).as_ref() == Some(&self.run));
            ours.map(|(key, object)| Leak {
                kind: key.kind.clone(),
                namespace: None,
                name: key.name.clone(),
                scenario: label(object, buffer_api::labels::SCENARIO).unwrap_or_default(),
            })
            .collect()
        };
        let gone = eventually(&world, self.shared.waits.patience(Wait::Cleanup), |state| {
            if state.complete() && ours(state).is_empty() { Ok(()) } else { Err(Unmet::default()) }
        })
        .await;
        if gone.is_err() && !world.read(State::complete) {
            return Err(Failure::Broken("the namespaces could not be listed".to_owned()));
        }
        Ok(world.read(ours))
    }
}

/// Runs the steps in a task of their own, so that neither a panic of one nor an interruption keeps the clean-up from running.
async fn supervise(
    body: impl Future<Output = ()> + Send + 'static,
    record: &Record,
    cancel: &CancellationToken,
) {
    let mut task = AbortOnDropHandle::new(tokio::spawn(body));
    let joined = tokio::select! {
        joined = &mut task => joined,
        () = cancel.cancelled() => {
            task.abort();
            record.lock().unknown.get_or_insert_with(|| "interrupted".to_owned());
            task.await
        }
    };
    if let Some(Ok(panic)) = joined.err().map(JoinError::try_into_panic) {
        let why = format!("the suite panicked: {}", panic_text(&*panic));
        record.lock().unknown.get_or_insert(why);
    }
}

/// The results of a scenario that has not run: one a case, or one where it has none.
#[must_use]
pub fn planned(scenario: &Scenario, outcome: Outcome, reason: Option<&str>) -> Vec<ScenarioResult> {
    let one = |case| blank(scenario, case, outcome, reason.map(ToOwned::to_owned));
    if scenario.cases.is_empty() {
        vec![one(None)]
    } else {
        scenario.cases.iter().map(Some).map(one).collect()
    }
}

/// The result of a case of which nothing has happened.
fn blank(
    scenario: &Scenario,
    case: Option<&Case>,
    outcome: Outcome,
    reason: Option<String>,
) -> ScenarioResult {
    ScenarioResult {
        id: scenario.id.clone(),
        name: scenario.name.clone(),
        case: case.map(|case| case.name.clone()),
        title: scenario.title.clone(),
        level: scenario.level,
        profiles: scenario.profiles.clone(),
        features: scenario.features.iter().map(ToString::to_string).collect(),
        sources: scenario.sources.clone(),
        file: scenario.file.clone(),
        catalogue: scenario.origin == Origin::Catalogue,
        outcome,
        reason,
        started_ms: 0,
        duration_ms: 0,
        attempts: 1,
        steps: with_unreached(scenario, Vec::new()),
        violations: Vec::new(),
        timeline: Vec::new(),
        leaks: Vec::new(),
    }
}

/// The steps of one case.
struct Script {
    scenario: Scenario,
    vars: Vars,
    /// Bound, but for the nodes of pods.
    steps: Vec<Step>,
}

impl Script {
    /// The step with the nodes of pods, where it names any.
    async fn locate(&self, context: &mut Context, index: usize) -> Result<Option<Step>, Failure> {
        let pods = self.scenario.located_pods(index);
        if pods.is_empty() {
            return Ok(None);
        }
        let mut nodes = BTreeMap::new();
        for pod in pods {
            let key = context.key(&target("v1", "Pod", pod, None)).await?;
            context.catch_up(&key).await?;
            // a pod that is gone was somewhere
            let node = context.world.read(|state| {
                let tracked = state.tracked(&key)?;
                let pod = tracked.now.as_ref().or_else(|| tracked.versions.last().map(|(_, pod)| pod))?;
                pod["spec"]["nodeName"].as_str().map(str::to_owned)
            });
            let node = node.ok_or_else(|| Failure::Broken(format!("{key} is not bound to a node")))?;
            nodes.insert(pod, node);
        }
        let located = self.scenario.locate(index, &self.vars, nodes);
        located.map_err(|diagnostic| Failure::Broken(diagnostic.to_string()))
    }
}

/// Sets the case up and runs its steps until one ends it.
async fn follow(context: Arc<Mutex<Context>>, pool: Option<Pool>, script: Script) {
    let mut context = context.lock_owned().await;
    let record = context.record.clone();
    if let Err(failure) = set_up(&mut context, pool.as_ref()).await {
        let why = match failure {
            Failure::Broken(why) => why,
            Failure::Unmet { wanted, missed } => format!("wanted {wanted}; saw {}", missed.last.seen),
        };
        record.lock().unknown = Some(format!("before the first step: {why}"));
        return;
    }
    let (dialect, features) = {
        let implementation = &context.shared.implementation;
        (implementation.dialect, implementation.features.clone())
    };
    for (index, step) in script.steps.iter().enumerate() {
        let keys = step.judge();
        let number = index + 1;
        let mut result = StepResult {
            number,
            title: step.title(),
            req: keys.req.map(|req| req.to_string()),
            outcome: StepOutcome::NotReached,
            started_ms: millis(context.world.read(State::age)),
            duration_ms: 0,
            wait: None,
            message: None,
        };
        let other_dialect = keys.dialect.is_some_and(|wanted| dialect != Some(wanted));
        let unclaimed = keys.feature.is_some_and(|wanted| !features.contains(&wanted));
        if other_dialect || unclaimed {
            result.outcome = StepOutcome::Skipped;
            record.lock().steps.push(result);
            continue;
        }
        context.world.note(Lane::Step, &format!("{number}"), &result.title);
        // whatever becomes of this task, the step that it was at is known
        record.lock().steps.push(result.clone());
        let held = match script.locate(&mut context, index).await {
            Ok(located) => steps::run(&mut context, located.as_ref().unwrap_or(step)).await,
            Err(failure) => Err(failure),
        };
        let judged = judge(number, keys, &context.shared.waits, &held);
        result.duration_ms = millis(context.world.read(State::age)).saturating_sub(result.started_ms);
        result.outcome = judged.outcome;
        result.wait = judged.wait;
        result.message = judged.message;
        let mut progress = record.lock();
        progress.steps.pop();
        progress.steps.push(result);
        progress.violations.extend(judged.violation);
        if !judged.goes_on {
            progress.unknown = judged.unknown;
            return;
        }
        if context.settled {
            return;
        }
    }
}

/// Watches list, namespace and pool are there; then births and losses begin to count.
async fn set_up(context: &mut Context, pool: Option<&Pool>) -> Result<(), Failure> {
    let namespace = context.scope.namespace.clone();
    let key = |api_version: &str, kind: &str, namespace: Option<&str>, name: &str| Key {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
    };
    let home = key("v1", "Namespace", None, &namespace);
    context.apply(&home, json!({"apiVersion": "v1", "kind": "Namespace"})).await?;
    // pods can't be created before
    let account = key("v1", "ServiceAccount", Some(&namespace), "default");
    context.cover(&account).await?;
    context
        .wait(Wait::NodeReady, "the default ServiceAccount", |state| {
            state.object(&account).map(drop).ok_or_else(|| Unmet::new("none"))
        })
        .await?;
    if let (Some(pool), Some(name)) = (pool, context.scope.pool.clone()) {
        pool::create(context, pool, &name).await?;
    }
    context.world.take_baseline();
    Ok(())
}

/// The steps that ran, then those that were not reached.
fn with_unreached(scenario: &Scenario, mut steps: Vec<StepResult>) -> Vec<StepResult> {
    for (index, outline) in scenario.outline.iter().enumerate().skip(steps.len()) {
        steps.push(StepResult {
            number: index + 1,
            title: outline.title.clone(),
            req: match outline.rows[..] {
                [row] => Some(row.id.to_owned()),
                _ => None,
            },
            outcome: StepOutcome::NotReached,
            started_ms: 0,
            duration_ms: 0,
            wait: None,
            message: None,
        });
    }
    steps
}

fn between(from: Timestamp, to: Timestamp) -> u64 {
    millis(Duration::try_from(to.duration_since(from)).unwrap_or_default())
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    fn unknown(record: &Record) -> Option<String> {
        record.lock().unknown.clone()
    }

    #[tokio::test]
    async fn a_panic_makes_the_result_unknown() {
        let record = Record::default();
        let guarded = Arc::new(Mutex::new(()));
        let held = Arc::clone(&guarded);
        let body = async move {
            let _guard = held.lock().await;
            panic!("step {}", 3);
        };
        supervise(body, &record, &CancellationToken::new()).await;
        assert_eq!(unknown(&record).as_deref(), Some("the suite panicked: step 3"));
        // what the steps held is free for the clean-up
        assert!(guarded.try_lock().is_ok());
    }

    #[tokio::test]
    async fn an_interruption_ends_the_steps_before_the_clean_up() {
        let record = Record::default();
        let cancel = CancellationToken::new();
        let guarded = Arc::new(Mutex::new(()));
        let held = Arc::clone(&guarded);
        let interrupt = cancel.clone();
        let body = async move {
            let _guard = held.lock().await;
            interrupt.cancel();
            pending::<()>().await;
        };
        supervise(body, &record, &cancel).await;
        assert_eq!(unknown(&record).as_deref(), Some("interrupted"));
        assert!(guarded.try_lock().is_ok());
    }

    #[tokio::test]
    async fn steps_that_end_leave_the_record_alone() {
        let record = Record::default();
        supervise(async {}, &record, &CancellationToken::new()).await;
        assert_eq!(unknown(&record), None);
    }
}
