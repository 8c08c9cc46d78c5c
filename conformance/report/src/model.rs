//! The result of a run, as `report.json` stores it. All lists have a fixed order; times are milliseconds.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of this format.
pub const SCHEMA_VERSION: &str = "bufconf.dev/v1alpha1";

/// A whole run.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: String,
    /// Id of the run, part of the names of what it created.
    pub run_id: String,
    /// Start of the run, RFC 3339.
    pub started_at: String,
    /// End of the run, RFC 3339.
    pub finished_at: String,
    /// Whether the verdict covers the whole catalogue or only what was selected.
    pub scope: Scope,
    /// The suite.
    pub suite: Suite,
    /// What was tested.
    pub implementation: Implementation,
    /// On what it was tested.
    pub environment: Environment,
    /// The waits in force: limit and patience of each.
    pub waits: Vec<WaitSetting>,
    /// One entry a scenario or a case of one, by id and case.
    pub results: Vec<ScenarioResult>,
    /// Verdict of each profile, by name.
    pub profiles: BTreeMap<Profile, ProfileVerdict>,
    /// What was left behind.
    pub leaks: Vec<Leak>,
    /// What cut the run short or damaged its record; empty after a run that went to its end.
    pub incidents: Vec<Incident>,
    /// Exit code that follows from all of the above.
    pub exit_code: u8,
}

/// Something that befell the run as a whole.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Incident {
    /// What it was.
    pub kind: IncidentKind,
    /// One sentence for the reader.
    pub message: String,
}

/// Kinds of incidents, in the order in which they decide the exit code.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum IncidentKind {
    /// Usage or configuration was wrong.
    Usage,
    /// The cluster or something else around the suite failed.
    Environment,
    /// SIGINT.
    Interrupted,
    /// SIGTERM.
    Terminated,
    /// The deadline of the run was reached.
    Deadline,
    /// An entry of the report could not be read.
    DamagedEntry,
}

/// What a verdict covers.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The whole catalogue.
    Full,
    /// Named scenarios only.
    Selection,
}

/// The suite that ran.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Suite {
    /// `bufconf`.
    pub name: String,
    /// Version of the suite.
    pub version: String,
    /// Hash over all scenario files that were loaded.
    pub catalogue_hash: String,
}

/// The implementation under test.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Implementation {
    /// Organization.
    pub organization: String,
    /// Project.
    pub project: String,
    /// Where it lives.
    pub url: String,
    /// Version.
    pub version: String,
    /// Whose reasons and messages it speaks, if anybody's.
    pub dialect: Option<String>,
    /// Profiles that it claims; only these are judged.
    pub profiles: Vec<Profile>,
    /// Features that it claims.
    pub features: Vec<String>,
}

/// The cluster under test.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Environment {
    /// `embedded`, `kind` or `existing`.
    pub cluster: String,
    /// Version that the API server reports.
    pub kubernetes_version: String,
    /// Planes that ran side by side.
    pub planes: usize,
    /// Processors of the machine.
    pub cpus: usize,
}

/// One row of the wait table.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WaitSetting {
    /// Name.
    pub name: String,
    /// What a conformant implementation may take; absent where no written source bounds it.
    pub limit_ms: Option<u64>,
    /// How long the suite watches.
    pub patience_ms: u64,
    /// Where the limit is written.
    pub source: Option<String>,
    /// Whether the user changed it.
    pub overridden: bool,
}

/// Profiles of the suite.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
pub enum Profile {
    /// The API as installed.
    #[serde(rename = "BUFFER-API")]
    BufferApi,
    /// References and sizes.
    #[serde(rename = "BUFFER-RESOLVE")]
    BufferResolve,
    /// Capacity really appears.
    #[serde(rename = "BUFFER-ACTIVE")]
    BufferActive,
    /// Capacity stays, and goes when it should.
    #[serde(rename = "BUFFER-RETAIN")]
    BufferRetain,
    /// ResourceQuotas.
    #[serde(rename = "BUFFER-QUOTA")]
    BufferQuota,
    /// Claims become nodes and go again.
    #[serde(rename = "NODE-LIFECYCLE")]
    NodeLifecycle,
    /// Living beside others (provisional).
    #[serde(rename = "INTEROP")]
    Interop,
}

/// How binding a scenario is.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Every implementation.
    Core,
    /// Every implementation that claims the feature.
    Extended,
    /// Contested, or still soaking: never part of a verdict.
    Provisional,
}

/// What became of a scenario.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Every assertion held.
    Passed,
    /// A marked assertion was violated.
    Nonconformant,
    /// Something else went wrong: nothing is known.
    Unknown,
    /// Passed, but not at the first attempt.
    Flaky,
    /// Needs a feature that the implementation does not claim.
    NotApplicable,
    /// Left out by the user.
    Excluded,
    /// A declared known failure.
    Exempted,
    /// The cluster or the declaration lacks what it needs.
    CouldNotRun,
    /// The run ended before its turn.
    NotRun,
}

/// What is said of a profile.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProfileVerdict {
    /// All core scenarios passed, and all extended ones of claimed features.
    Conformant,
    /// The same but for declared exemptions.
    ConformantWithExemptions,
    /// Something was violated.
    Nonconformant,
    /// Nothing was violated, but something did not run to its end.
    Incomplete,
    /// The implementation does not claim it.
    NotClaimed,
}

/// The result of one scenario, or of one case of it.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScenarioResult {
    /// Stable id, such as `CB-ACT-001`.
    pub id: String,
    /// Name, such as `zero-node-baseline`.
    pub name: String,
    /// Name of the case, where the scenario is a table.
    pub case: Option<String>,
    /// Title.
    pub title: String,
    /// Level.
    pub level: Level,
    /// Profiles that it counts for.
    pub profiles: Vec<Profile>,
    /// Features that it needs.
    pub features: Vec<String>,
    /// Where the requirement is written down.
    pub sources: Vec<Source>,
    /// Path of the file, relative to the scenarios folder.
    pub file: String,
    /// Whether it belongs to the suite's catalogue (else it is the user's own and never part of the verdict).
    pub catalogue: bool,
    /// What became of it.
    pub outcome: Outcome,
    /// Why, unless it passed.
    pub reason: Option<String>,
    /// Start, milliseconds after the start of the run.
    pub started_ms: u64,
    /// Duration without waiting for its turn.
    pub duration_ms: u64,
    /// Attempts, 1 unless it was repeated.
    pub attempts: u32,
    /// The steps, in order.
    pub steps: Vec<StepResult>,
    /// Marked assertions that were violated.
    pub violations: Vec<Violation>,
    /// Everything that was seen, on one clock.
    pub timeline: Vec<TimelineEvent>,
    /// What it left behind.
    pub leaks: Vec<Leak>,
}

/// Where a requirement is written down.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// What it is.
    pub title: String,
    /// Where it is: a URL or a path.
    #[serde(rename = "ref")]
    pub reference: String,
}

/// What became of one step.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StepResult {
    /// Number of the step, from 1.
    pub number: usize,
    /// Verb and object, one line.
    pub title: String,
    /// Requirement row that it is marked with.
    pub req: Option<String>,
    /// Whether it held, failed, was skipped (another dialect), or was not reached.
    pub outcome: StepOutcome,
    /// Start, milliseconds after the start of the scenario.
    pub started_ms: u64,
    /// Duration.
    pub duration_ms: u64,
    /// The wait that bounded it.
    pub wait: Option<WaitResult>,
    /// What went wrong.
    pub message: Option<String>,
}

/// What became of a step.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepOutcome {
    /// It held.
    Passed,
    /// It did not hold.
    Failed,
    /// It belongs to another dialect.
    Skipped,
    /// The scenario ended before it.
    NotReached,
}

/// A named wait, measured.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WaitResult {
    /// Name in the wait table.
    pub name: String,
    /// How long it took.
    pub elapsed_ms: u64,
    /// What a conformant implementation may take, if anything says so.
    pub limit_ms: Option<u64>,
    /// How long the suite watched at most.
    pub patience_ms: u64,
    /// It took longer than usual, with no written limit to judge by.
    pub slow: bool,
}

/// A marked assertion that did not hold.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Violation {
    /// Requirement row.
    pub req: String,
    /// Number of the step.
    pub step: usize,
    /// What was wanted.
    pub wanted: String,
    /// What was seen last.
    pub observed: String,
    /// The difference, line by line, `-` wanted and `+` seen.
    pub diff: Option<String>,
    /// Since when it was so, and how many updates were seen.
    pub history: String,
}

/// Something that was seen.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TimelineEvent {
    /// Milliseconds after the start of the scenario.
    pub at_ms: u64,
    /// What kind of thing it is about.
    pub lane: Lane,
    /// Object, without its namespace.
    pub object: String,
    /// What happened, in a few words: `Type=Status Reason` for one condition (`Provisioning=True FitsExistingCapacity`),
    /// `field=value` for a status field (`replicas=3`), else a plain word: `created`, `bound`, `Running`, `tainted`,
    /// `deleting` (it has a deletion timestamp), `deleted` (it is gone).
    pub what: String,
}

/// Rows of the time line, from top to bottom.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Lane {
    /// A step of the scenario.
    Step,
    /// A buffer and its conditions.
    Buffer,
    /// A node claim.
    Claim,
    /// A node.
    Node,
    /// A pod.
    Pod,
    /// An event object.
    Event,
}

/// Something that was left behind.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Leak {
    /// Kind.
    pub kind: String,
    /// Namespace, if it has one.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// Scenario that made it.
    pub scenario: String,
}
