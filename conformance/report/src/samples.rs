//! Fixed reports for the tests of this crate.

use crate::merge::{Header, merge};
use crate::model::{
    Environment, Implementation, Incident, IncidentKind, Lane, Leak, Level, Outcome, Profile, Report,
    ScenarioResult, Scope, Source, StepOutcome, StepResult, Suite, TimelineEvent, Violation, WaitResult,
    WaitSetting,
};

/// An entry of BUFFER-ACTIVE that went as its outcome says.
pub fn scenario(id: &str, outcome: Outcome) -> ScenarioResult {
    let failed = matches!(outcome, Outcome::Nonconformant | Outcome::Unknown);
    let ran = failed || matches!(outcome, Outcome::Passed | Outcome::Flaky);
    let step_outcome = if failed { StepOutcome::Failed } else { StepOutcome::Passed };
    ScenarioResult {
        id: id.into(),
        name: format!("scenario-{}", id.to_lowercase()),
        case: None,
        title: format!("What {id} asks for"),
        level: Level::Core,
        profiles: vec![Profile::BufferActive],
        features: vec![],
        sources: vec![Source {
            title: "CapacityBuffer proposal".into(),
            reference: "https://example.com/proposal".into(),
        }],
        file: format!("active/scenario-{}.yaml", id.to_lowercase()),
        catalogue: true,
        outcome,
        reason: (outcome != Outcome::Passed).then(|| "because of the sample".into()),
        started_ms: 0,
        duration_ms: if ran { 500 } else { 0 },
        attempts: if outcome == Outcome::Flaky { 2 } else { u32::from(ran) },
        steps: if ran {
            vec![step(1, "assert CapacityBuffer/web", "H2", 20, 400, step_outcome)]
        } else {
            vec![]
        },
        violations: if outcome == Outcome::Nonconformant { vec![violation(1)] } else { vec![] },
        timeline: vec![],
        leaks: vec![],
    }
}

fn violation(step: usize) -> Violation {
    Violation {
        req: "H11".into(),
        step,
        wanted: "nodes of the pool: 0".into(),
        observed: "nodes of the pool: 3".into(),
        diff: Some(
            " status:\n   conditions:\n-    Provisioning: \"True\"\n+    Provisioning: \"False\"\n".into(),
        ),
        history: "unchanged for 118.2 s, 4 updates seen".into(),
    }
}

pub fn leak(scenario: &str) -> Leak {
    Leak {
        kind: "NodeClaim".into(),
        namespace: None,
        name: "pool-r7k2-act-004-x1".into(),
        scenario: scenario.into(),
    }
}

pub fn incident(kind: IncidentKind) -> Incident {
    Incident { kind, message: format!("{kind:?} in the sample") }
}

fn wait(name: &str, elapsed_ms: u64) -> WaitResult {
    let (limit_ms, patience_ms) = match name {
        "resolve" => (Some(30_000), 45_000),
        "bind" | "stable" | "provision" | "refill" => (None, 60_000),
        _ => (None, 120_000),
    };
    WaitResult { name: name.into(), elapsed_ms, limit_ms, patience_ms, slow: false }
}

fn step(number: usize, title: &str, req: &str, at: u64, took: u64, outcome: StepOutcome) -> StepResult {
    let within = [
        ("headroom", "provision"),
        ("probe", "bind"),
        ("hold", "stable"),
        ("nodes", "release"),
        ("assert", "resolve"),
    ];
    let name = within.iter().find(|(verb, _)| title.starts_with(verb)).map(|(_, wait)| *wait);
    StepResult {
        number,
        title: title.into(),
        req: (!req.is_empty()).then(|| req.into()),
        outcome,
        started_ms: at,
        duration_ms: took,
        wait: name
            .filter(|_| matches!(outcome, StepOutcome::Passed | StepOutcome::Failed))
            .map(|name| wait(name, took)),
        message: match outcome {
            StepOutcome::Failed => {
                Some("wanted nodes of the pool: 0, last seen: 3, unchanged for 118.2 s".into())
            }
            StepOutcome::Skipped => Some("only for the dialect cluster-autoscaler".into()),
            _ => None,
        },
    }
}

fn event(at_ms: u64, lane: Lane, object: &str, what: &str) -> TimelineEvent {
    TimelineEvent { at_ms, lane, object: object.into(), what: what.into() }
}

/// A buffer that is resolved at once, `count` nodes that appear, the buffer that says so.
fn provisioning(count: u64) -> Vec<TimelineEvent> {
    let ready = 180 + count * 6;
    let mut events = vec![
        event(14, Lane::Buffer, "web", "created"),
        event(31, Lane::Buffer, "web", "ReadyForProvisioning=True Resolved"),
        event(31, Lane::Buffer, "web", &format!("replicas={count}")),
        event(38, Lane::Buffer, "web", "Provisioning=False RequiresNewCapacity"),
        event(ready + 30, Lane::Buffer, "web", "Provisioning=True FitsExistingCapacity"),
    ];
    for i in 0..count {
        let (claim, node) = (format!("pool-r7k2-web-{i}"), format!("pool-r7k2-web-{i}"));
        let at = 52 + i * 5;
        events.extend([
            event(at, Lane::Claim, &claim, "created"),
            event(at + 20, Lane::Claim, &claim, "Launched=True"),
            event(at + 48, Lane::Node, &node, "created"),
            event(at + 70, Lane::Claim, &claim, "Registered=True"),
            event(at + 96, Lane::Node, &node, "Ready=True KubeletReady"),
            event(at + 120, Lane::Claim, &claim, "Initialized=True"),
        ]);
    }
    events
}

/// Real pods that take the headroom and go again.
fn probing(count: u64, from: u64) -> Vec<TimelineEvent> {
    (0..count)
        .flat_map(|i| {
            let pod = format!("probe-web-{i}");
            [
                event(from + i * 3, Lane::Pod, &pod, "created"),
                event(from + 25 + i * 4, Lane::Pod, &pod, "bound"),
                event(from + 60 + i * 5, Lane::Pod, &pod, "Running"),
                event(from + 140, Lane::Pod, &pod, "deleting"),
                event(from + 190 + i * 6, Lane::Pod, &pod, "deleted"),
            ]
        })
        .collect()
}

fn named(id: &str, name: &str, title: &str, profile: Profile, outcome: Outcome) -> ScenarioResult {
    let folder = profile_folder(profile);
    ScenarioResult {
        name: name.into(),
        title: title.into(),
        profiles: vec![profile],
        file: format!("{folder}/{name}.yaml"),
        ..scenario(id, outcome)
    }
}

fn profile_folder(profile: Profile) -> &'static str {
    match profile {
        Profile::BufferApi => "api",
        Profile::BufferResolve => "resolve",
        Profile::BufferActive => "active",
        Profile::BufferRetain => "retain",
        Profile::BufferQuota => "quota",
        Profile::NodeLifecycle => "lifecycle",
        Profile::Interop => "interop",
    }
}

fn baseline() -> ScenarioResult {
    let mut timeline = provisioning(3);
    timeline.extend(probing(3, 330));
    timeline.push(event(332, Lane::Event, "probe-web-0", "Scheduled Successfully assigned"));
    timeline.push(event(560, Lane::Buffer, "web", "deleted"));
    timeline.sort_by_key(|e| e.at_ms);
    ScenarioResult {
        duration_ms: 640,
        steps: vec![
            step(1, "apply PodTemplate/web, CapacityBuffer/web", "", 0, 12, StepOutcome::Passed),
            step(2, "assert CapacityBuffer/web", "H2", 12, 24, StepOutcome::Passed),
            step(3, "headroom of web: 3 copies", "H2", 36, 192, StepOutcome::Passed),
            step(4, "assert CapacityBuffer/web", "B2", 228, 8, StepOutcome::Passed),
            step(5, "assert CapacityBuffer/web", "B3", 236, 0, StepOutcome::Skipped),
            step(6, "probe web with 3 real pods", "H7", 320, 240, StepOutcome::Passed),
        ],
        timeline,
        ..named(
            "CB-ACT-001",
            "zero-node-baseline",
            "A buffer provisions nodes from zero",
            Profile::BufferActive,
            Outcome::Passed,
        )
    }
}

fn no_churn() -> ScenarioResult {
    let mut steps = vec![
        step(1, "apply PodTemplate/web, CapacityBuffer/web", "", 0, 14, StepOutcome::Passed),
        step(2, "headroom of web: 30 copies", "H2", 14, 380, StepOutcome::Passed),
        step(3, "hold nodes born 30, lost 0", "H12", 394, 60_000, StepOutcome::Passed),
    ];
    if let Some(wait) = &mut steps[1].wait {
        wait.slow = true;
    }
    ScenarioResult {
        started_ms: 700,
        duration_ms: 60_420,
        steps,
        timeline: provisioning(30),
        ..named(
            "CB-ACT-003",
            "no-churn",
            "Thirty chunks give exactly thirty nodes, and none is lost",
            Profile::BufferActive,
            Outcome::Passed,
        )
    }
}

fn cleanup(outcome: Outcome) -> ScenarioResult {
    let failed = outcome == Outcome::Nonconformant;
    let mut timeline = provisioning(3);
    timeline.push(event(12_400, Lane::Buffer, "web", "deleted"));
    if !failed {
        for i in 0..3 {
            let name = format!("pool-r7k2-web-{i}");
            timeline.push(event(12_430, Lane::Claim, &name, "deleting"));
            timeline.push(event(12_440, Lane::Node, &name, "tainted"));
            timeline.push(event(12_620 + i * 9, Lane::Node, &name, "deleted"));
            timeline.push(event(12_640 + i * 9, Lane::Claim, &name, "deleted"));
        }
    }
    let (took, end) = if failed { (120_000, StepOutcome::Failed) } else { (290, StepOutcome::Passed) };
    ScenarioResult {
        started_ms: 1_300,
        duration_ms: 12_400 + took,
        steps: vec![
            step(1, "apply PodTemplate/web, CapacityBuffer/web", "", 0, 12, StepOutcome::Passed),
            step(2, "headroom of web: 3 copies", "H2", 12, 220, StepOutcome::Passed),
            step(3, "offset 12 s after a multiple of 30 s", "", 232, 12_160, StepOutcome::Passed),
            step(4, "delete CapacityBuffer/web", "", 12_392, 8, StepOutcome::Passed),
            step(5, "nodes equal baseline", "H11", 12_400, took, end),
            step(
                6,
                "claims equal 0",
                "H11",
                12_400 + took,
                40,
                if failed { StepOutcome::NotReached } else { StepOutcome::Passed },
            ),
        ],
        violations: if failed { vec![violation(5)] } else { vec![] },
        reason: failed.then(|| "step 5 (H11): wanted nodes of the pool: 0, last seen: 3".into()),
        timeline,
        leaks: if failed { vec![leak("CB-ACT-004")] } else { vec![] },
        ..named(
            "CB-ACT-004",
            "clean-up",
            "Deleting the last buffer gives back every node",
            Profile::BufferActive,
            outcome,
        )
    }
}

fn consolidation() -> ScenarioResult {
    ScenarioResult {
        started_ms: 14_000,
        duration_ms: 60_390,
        steps: vec![
            step(1, "apply PodTemplate/web, CapacityBuffer/web", "", 0, 12, StepOutcome::Passed),
            step(2, "headroom of web: 3 copies", "H2", 12, 220, StepOutcome::Passed),
            step(3, "hold headroom of web, nodes born 0, lost 0", "H12", 232, 60_000, StepOutcome::Passed),
        ],
        timeline: provisioning(3)
            .into_iter()
            .chain([event(10_232, Lane::Event, "pool-r7k2-web-0", "Unconsolidatable has buffer pods")])
            .collect(),
        ..named(
            "CB-RET-001",
            "survives-consolidation",
            "Headroom survives consolidation",
            Profile::BufferRetain,
            Outcome::Passed,
        )
    }
}

fn case(name: &str, outcome: Outcome) -> ScenarioResult {
    ScenarioResult {
        case: Some(name.into()),
        started_ms: 20,
        duration_ms: 90,
        steps: vec![
            step(1, "apply Deployment/web, CapacityBuffer/web", "", 0, 20, StepOutcome::Passed),
            step(
                2,
                "assert CapacityBuffer/web",
                name,
                20,
                70,
                if outcome == Outcome::Passed { StepOutcome::Passed } else { StepOutcome::Failed },
            ),
        ],
        ..named(
            "CB-RES-001",
            "sizing",
            "The size follows replicas, percentage and limits",
            Profile::BufferResolve,
            outcome,
        )
    }
}

fn header(scope: Scope) -> Header {
    let wait_setting = |name: &str, source: Option<&str>, overridden| {
        let WaitResult { limit_ms, patience_ms, .. } = wait(name, 0);
        WaitSetting { name: name.into(), limit_ms, patience_ms, source: source.map(Into::into), overridden }
    };
    Header {
        run_id: "r7k2".into(),
        started_at: "2026-12-01T09:30:00Z".into(),
        finished_at: "2026-12-01T09:33:12Z".into(),
        scope,
        suite: Suite {
            name: "bufconf".into(),
            version: "0.1.0".into(),
            catalogue_hash: "sha256:6f1d2c".into(),
        },
        implementation: Implementation {
            organization: "bufconf".into(),
            project: "reference".into(),
            url: "https://example.com/bufconf".into(),
            version: "0.1.0".into(),
            dialect: Some("karpenter".into()),
            profiles: vec![
                Profile::BufferApi,
                Profile::BufferResolve,
                Profile::BufferActive,
                Profile::BufferRetain,
            ],
            features: vec!["ObservedGeneration".into(), "ServedV1alpha1".into()],
        },
        environment: Environment {
            cluster: "embedded".into(),
            kubernetes_version: "v1.36.3".into(),
            planes: 3,
            cpus: 2,
        },
        waits: vec![
            wait_setting("resolve", Some("Karpenter guide: changes are seen within 30 s"), false),
            wait_setting("provision", None, false),
            wait_setting("bind", None, false),
            wait_setting("stable", None, false),
            wait_setting("release", None, true),
        ],
        leaks: vec![],
        incidents: vec![],
    }
}

/// A full run with these results.
pub fn report(results: Vec<ScenarioResult>) -> Report {
    merge(header(Scope::Full), results, vec![])
}

/// A full run of an implementation that claims nothing but BUFFER-ACTIVE.
pub fn active(results: Vec<ScenarioResult>) -> Report {
    let mut header = header(Scope::Full);
    header.implementation.profiles = vec![Profile::BufferActive];
    merge(header, results, vec![])
}

/// A selection of documented scenarios, all passed.
pub fn documented() -> Report {
    let results = vec![
        baseline(),
        case("V1", Outcome::Passed),
        case("V2", Outcome::Passed),
        no_churn(),
        cleanup(Outcome::Passed),
        consolidation(),
    ];
    merge(header(Scope::Selection), results, vec![])
}

/// A full run with every outcome, a leak, own and provisional scenarios, and text that would break careless renderers.
pub fn full() -> Report {
    let quota = explained(
        "CB-QUO-001",
        "quota-shrinks",
        Profile::BufferQuota,
        Outcome::NotApplicable,
        "needs the feature ResourceQuotas",
    );
    let foreign = explained(
        "CB-INT-001",
        "foreign-strategy",
        Profile::Interop,
        Outcome::Nonconformant,
        "step 1 (H2): wanted no condition",
    );
    let own = named("MY-001", "our-gpu-pool", "One <spare> GPU node", Profile::BufferActive, Outcome::Passed);
    report(vec![
        baseline(),
        no_churn(),
        cleanup(Outcome::Nonconformant),
        consolidation(),
        case("V1", Outcome::Passed),
        case("V2", Outcome::Passed),
        case("V10", Outcome::Passed),
        explained(
            "CB-ACT-005",
            "refill",
            Profile::BufferActive,
            Outcome::Flaky,
            "attempt 1: step 4 (H8): wanted Provisioning=False at once, last seen: True",
        ),
        explained(
            "CB-API-001",
            "served-versions",
            Profile::BufferApi,
            Outcome::Unknown,
            "step 1: <Status 500> \"etcdserver: request timed out\" | `GET /apis` failed & was retried",
        ),
        explained(
            "CB-API-002",
            "rejects-both-references",
            Profile::BufferApi,
            Outcome::NotRun,
            "the run ended before its turn",
        ),
        explained(
            "CB-RET-002",
            "expiry-refills",
            Profile::BufferRetain,
            Outcome::CouldNotRun,
            "needs the hook expiry",
        ),
        explained(
            "CB-RET-003",
            "drift-replaces",
            Profile::BufferRetain,
            Outcome::Exempted,
            "known: https://example.com/issues/12, until 2027-01-01",
        ),
        explained(
            "CB-RES-010",
            "limit-range",
            Profile::BufferResolve,
            Outcome::Excluded,
            "left out with --skip",
        ),
        ScenarioResult { level: Level::Extended, features: vec!["ResourceQuotas".into()], ..quota },
        ScenarioResult { level: Level::Provisional, ..foreign },
        ScenarioResult { catalogue: false, file: "our-gpu-pool.yaml".into(), ..own },
    ])
}

fn explained(id: &str, name: &str, profile: Profile, outcome: Outcome, reason: &str) -> ScenarioResult {
    ScenarioResult {
        reason: Some(reason.into()),
        ..named(id, name, &format!("What {name} asks for"), profile, outcome)
    }
}
