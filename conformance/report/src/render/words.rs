//! The words and numbers that all renderers share.

use std::time::Duration;

use crate::model::{
    Lane, Leak, Level, Outcome, Profile, ProfileVerdict, Report, ScenarioResult, Scope, StepOutcome,
    StepResult, Violation, WaitResult,
};
use crate::verdict::{self, RunVerdict};

/// All outcomes, from what needs a look to what does not.
pub const OUTCOMES: [Outcome; 9] = [
    Outcome::Nonconformant,
    Outcome::Unknown,
    Outcome::Flaky,
    Outcome::CouldNotRun,
    Outcome::NotRun,
    Outcome::Exempted,
    Outcome::Excluded,
    Outcome::NotApplicable,
    Outcome::Passed,
];

/// How something reads and looks: a word, a sign that carries the same without colour, a class of colour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    pub word: &'static str,
    pub sign: &'static str,
    pub tone: Tone,
}

/// Colours by meaning; the names are the CSS classes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tone {
    Good,
    Bad,
    Warn,
    Dim,
}

impl Tone {
    pub const fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Bad => "bad",
            Self::Warn => "warn",
            Self::Dim => "dim",
        }
    }
}

const fn look(word: &'static str, sign: &'static str, tone: Tone) -> Look {
    Look { word, sign, tone }
}

pub const fn outcome(outcome: Outcome) -> Look {
    match outcome {
        Outcome::Passed => look("passed", "✔", Tone::Good),
        Outcome::Nonconformant => look("nonconformant", "✘", Tone::Bad),
        Outcome::Unknown => look("unknown", "?", Tone::Warn),
        Outcome::Flaky => look("flaky", "~", Tone::Warn),
        Outcome::NotApplicable => look("not-applicable", "–", Tone::Dim),
        Outcome::Excluded => look("excluded", "–", Tone::Dim),
        Outcome::Exempted => look("exempted", "!", Tone::Warn),
        Outcome::CouldNotRun => look("could-not-run", "?", Tone::Warn),
        Outcome::NotRun => look("not-run", "·", Tone::Warn),
    }
}

/// A step of a result. What did not hold in a scenario that passed is of a row that is only recorded.
pub fn step(step: &StepResult, result: &ScenarioResult) -> Look {
    match step.outcome {
        StepOutcome::Passed => look("passed", "✔", Tone::Good),
        StepOutcome::Failed if failed(step, result) => look("failed", "✘", Tone::Bad),
        StepOutcome::Failed => look("recorded", "!", Tone::Dim),
        StepOutcome::Skipped => look("skipped", "–", Tone::Dim),
        StepOutcome::NotReached => look("not reached", "·", Tone::Dim),
    }
}

/// Whether a step did not hold and that matters.
pub fn failed(step: &StepResult, result: &ScenarioResult) -> bool {
    let passed = matches!(result.outcome, Outcome::Passed | Outcome::Flaky);
    step.outcome == StepOutcome::Failed && !(passed && step.req.is_some())
}

pub const fn profile_verdict(verdict: ProfileVerdict) -> Look {
    match verdict {
        ProfileVerdict::Conformant => look("conformant", "✔", Tone::Good),
        ProfileVerdict::ConformantWithExemptions => look("conformant-with-exemptions", "!", Tone::Warn),
        ProfileVerdict::Nonconformant => look("nonconformant", "✘", Tone::Bad),
        ProfileVerdict::Incomplete => look("incomplete", "?", Tone::Warn),
        ProfileVerdict::NotClaimed => look("not-claimed", "–", Tone::Dim),
    }
}

pub const fn profile(profile: Profile) -> &'static str {
    match profile {
        Profile::BufferApi => "BUFFER-API",
        Profile::BufferResolve => "BUFFER-RESOLVE",
        Profile::BufferActive => "BUFFER-ACTIVE",
        Profile::BufferRetain => "BUFFER-RETAIN",
        Profile::BufferQuota => "BUFFER-QUOTA",
        Profile::NodeLifecycle => "NODE-LIFECYCLE",
        Profile::Interop => "INTEROP",
    }
}

pub const fn level(level: Level) -> &'static str {
    match level {
        Level::Core => "core",
        Level::Extended => "extended",
        Level::Provisional => "provisional",
    }
}

pub const fn lane(lane: Lane) -> &'static str {
    match lane {
        Lane::Step => "step",
        Lane::Buffer => "buffer",
        Lane::Claim => "claim",
        Lane::Node => "node",
        Lane::Pod => "pod",
        Lane::Event => "event",
    }
}

/// The verdict of the whole run in a few words.
pub fn headline(report: &Report) -> Look {
    match RunVerdict::of(report) {
        RunVerdict::Usage => look("usage or configuration error", "✘", Tone::Bad),
        RunVerdict::Environment => look("the environment failed", "✘", Tone::Bad),
        RunVerdict::Interrupted => look("interrupted", "?", Tone::Warn),
        RunVerdict::Terminated => look("terminated", "?", Tone::Warn),
        RunVerdict::Deadline => look("stopped at its deadline", "?", Tone::Warn),
        RunVerdict::BadReport => look("the report is damaged", "✘", Tone::Bad),
        RunVerdict::NothingRan => look("nothing ran", "?", Tone::Warn),
        RunVerdict::Violation => look("nonconformant", "✘", Tone::Bad),
        RunVerdict::Leaks => look("something was left behind", "✘", Tone::Bad),
        RunVerdict::Flaky => look("flaky", "~", Tone::Warn),
        RunVerdict::Incomplete => look("incomplete", "?", Tone::Warn),
        RunVerdict::Conformant if verdict::own_only(&report.results) => {
            look("own scenarios passed", "✔", Tone::Good)
        }
        RunVerdict::Conformant if report.scope == Scope::Selection => {
            look("all that was selected conforms", "✔", Tone::Good)
        }
        RunVerdict::Conformant
            if report.profiles.values().any(|v| *v == ProfileVerdict::ConformantWithExemptions) =>
        {
            look("conformant with exemptions", "!", Tone::Warn)
        }
        RunVerdict::Conformant => look("conformant", "✔", Tone::Good),
    }
}

/// What the verdict covers, as a sentence.
pub fn scope(report: &Report) -> String {
    match report.scope {
        Scope::Full => "The verdict covers the whole catalogue.".to_owned(),
        Scope::Selection => {
            format!("The verdict covers only what was selected ({}).", count(shown(report).count(), "result"))
        }
    }
}

/// The results that a reader wants: in a selection, not what was left out of it.
pub fn shown(report: &Report) -> impl Iterator<Item = &ScenarioResult> {
    let all = report.scope == Scope::Full;
    report.results.iter().filter(move |r| all || r.outcome != Outcome::Excluded)
}

/// Why a result is not part of the verdict, if it ran and is not.
pub fn aside(result: &ScenarioResult, report: &Report) -> Option<&'static str> {
    if !result.catalogue {
        Some("own")
    } else if result.level == Level::Provisional {
        Some("provisional")
    } else if verdict::ran(result.outcome) && !verdict::counts(result, &report.implementation) {
        Some("not claimed")
    } else {
        None
    }
}

/// Number of results by outcome, those that need a look first; absent outcomes are left out.
pub fn totals(report: &Report) -> Vec<(Outcome, usize)> {
    OUTCOMES
        .into_iter()
        .map(|outcome| (outcome, shown(report).filter(|r| r.outcome == outcome).count()))
        .filter(|(_, n)| *n > 0)
        .collect()
}

/// `9 passed, 1 nonconformant`.
pub fn totals_line(report: &Report) -> String {
    let parts: Vec<String> =
        totals(report).iter().map(|(o, n)| format!("{n} {}", outcome(*o).word)).collect();
    if parts.is_empty() { "no results".to_owned() } else { parts.join(", ") }
}

/// `1 node`, `2 nodes`.
pub fn count(n: usize, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

/// A measured time in seconds, with the digits that matter: `0.024 s`, `0.41 s`, `12.3 s`, `120 s`.
pub fn seconds(ms: u64) -> String {
    let digits = match ms {
        ..100 => 3,
        100..10_000 => 2,
        10_000..100_000 => 1,
        _ => 0,
    };
    format!("{:.digits$} s", Duration::from_millis(ms).as_secs_f64())
}

/// A bound in seconds, exactly: `60 s`, `0.5 s`.
pub fn bound(ms: u64) -> String {
    format!("{} s", Duration::from_millis(ms).as_secs_f64())
}

/// A limit, if there is one.
pub fn limit(ms: Option<u64>) -> String {
    ms.map_or_else(|| "none".to_owned(), bound)
}

/// The waits of one name in one scenario, told by the longest.
pub struct Measured<'a> {
    pub wait: &'a WaitResult,
    pub times: usize,
    /// A step that it bounded did not hold.
    pub failed: bool,
}

impl Measured<'_> {
    /// It took longer than what is written somewhere.
    pub fn late(&self) -> bool {
        self.wait.limit_ms.is_some_and(|limit| self.wait.elapsed_ms > limit)
    }

    /// What is to be said of it, if anything.
    pub fn mark(&self) -> Option<&'static str> {
        if self.failed {
            Some("failed")
        } else if self.late() {
            Some("late")
        } else if self.wait.slow {
            Some("slow")
        } else {
            None
        }
    }
}

impl std::fmt::Display for Measured<'_> {
    /// `provision 0.41 s (limit none, patience 60 s)`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let WaitResult { name, elapsed_ms, limit_ms, patience_ms, .. } = self.wait;
        write!(f, "{name} {}", seconds(*elapsed_ms))?;
        if self.times > 1 {
            write!(f, ", longest of {}", self.times)?;
        }
        write!(f, " (limit {}, patience {})", limit(*limit_ms), bound(*patience_ms))?;
        self.mark().map_or(Ok(()), |mark| write!(f, " {mark}"))
    }
}

/// The waits of a scenario by name, in the order of their first use.
pub fn measured(result: &ScenarioResult) -> Vec<Measured<'_>> {
    let mut all: Vec<Measured> = Vec::new();
    let reached = |step: &&StepResult| matches!(step.outcome, StepOutcome::Passed | StepOutcome::Failed);
    for step in result.steps.iter().filter(reached) {
        let Some(wait) = &step.wait else { continue };
        let failed = failed(step, result);
        match all.iter_mut().find(|m| m.wait.name == wait.name) {
            Some(known) => {
                known.times += 1;
                if (failed, wait.elapsed_ms) > (known.failed, known.wait.elapsed_ms) {
                    known.wait = wait;
                }
                known.failed |= failed;
            }
            None => all.push(Measured { wait, times: 1, failed }),
        }
    }
    all
}

/// Id, name and case.
pub fn name(result: &ScenarioResult) -> String {
    let case = result.case.as_ref().map(|case| format!(" {case}")).unwrap_or_default();
    one_line(&format!("{} {}{case}", result.id, result.name))
}

/// Wanted, seen and since when, as one sentence.
pub fn violation(violation: &Violation) -> String {
    let Violation { req, step, wanted, observed, history, .. } = violation;
    one_line(&format!("step {step} ({req}): wanted {wanted}; seen {observed}; {history}"))
}

/// What was left behind, and by whom.
pub fn leak(leak: &Leak) -> String {
    let namespace = leak.namespace.as_ref().map(|n| format!("{n}/")).unwrap_or_default();
    one_line(&format!("{} {namespace}{}, made by {}", leak.kind, leak.name, leak.scenario))
}

/// Text that came from outside on one line and without control characters.
pub fn one_line(text: &str) -> String {
    text.split(|c: char| c.is_control() || c.is_whitespace())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// `implementation 1.2 (karpenter dialect) on embedded, Kubernetes v1.36.3`.
pub fn subject(report: &Report) -> String {
    let i = &report.implementation;
    let dialect = i.dialect.as_ref().map(|d| format!(", dialect {d}")).unwrap_or_default();
    one_line(&format!(
        "{}/{} {}{dialect}, on {} with Kubernetes {}",
        i.organization,
        i.project,
        i.version,
        report.environment.cluster,
        report.environment.kubernetes_version
    ))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::samples::{active, documented, scenario};

    #[rstest]
    #[case(0, "0.000 s")]
    #[case(24, "0.024 s")]
    #[case(410, "0.41 s")]
    #[case(9_994, "9.99 s")]
    #[case(12_345, "12.3 s")]
    #[case(120_000, "120 s")]
    fn measured_times(#[case] ms: u64, #[case] expected: &str) {
        assert_eq!(seconds(ms), expected);
    }

    #[rstest]
    #[case(60_000, "60 s")]
    #[case(500, "0.5 s")]
    #[case(1_234, "1.234 s")]
    fn bounds(#[case] ms: u64, #[case] expected: &str) {
        assert_eq!(bound(ms), expected);
    }

    #[test]
    fn one_line_is_one_line() {
        assert_eq!(one_line(" a\n\tb \x1b[31mc\u{85}d "), "a b [31mc d");
    }

    #[rstest]
    #[case::slow(&[(400, None, true, StepOutcome::Passed)], "provision 0.40 s (limit none, patience 60 s) slow")]
    #[case::late(&[(400, Some(300), false, StepOutcome::Passed)], "provision 0.40 s (limit 0.3 s, patience 60 s) late")]
    #[case::longest(
        &[(400, None, false, StepOutcome::Passed), (900, None, false, StepOutcome::Passed)],
        "provision 0.90 s, longest of 2 (limit none, patience 60 s)"
    )]
    #[case::the_failed_one(
        &[(900, None, false, StepOutcome::Failed), (1_900, None, false, StepOutcome::Passed)],
        "provision 0.90 s, longest of 2 (limit none, patience 60 s) failed"
    )]
    fn waits(#[case] steps: &[(u64, Option<u64>, bool, StepOutcome)], #[case] expected: &str) {
        let mut result = scenario("CB-ACT-001", Outcome::Nonconformant);
        let step = result.steps.remove(0);
        for &(elapsed_ms, limit_ms, slow, outcome) in steps {
            let wait =
                WaitResult { name: "provision".into(), elapsed_ms, limit_ms, patience_ms: 60_000, slow };
            result.steps.push(StepResult { wait: Some(wait), outcome, ..step.clone() });
        }
        let all: Vec<String> = measured(&result).iter().map(ToString::to_string).collect();
        assert_eq!(all, [expected]);
    }

    #[rstest]
    #[case::violated(Outcome::Nonconformant, Some("H2"), "failed")]
    #[case::only_recorded(Outcome::Passed, Some("H2"), "recorded")]
    #[case::unmarked(Outcome::Passed, None, "failed")]
    fn steps_that_did_not_hold(#[case] outcome: Outcome, #[case] req: Option<&str>, #[case] word: &str) {
        let mut result = scenario("CB-ACT-001", outcome);
        result.steps[0].outcome = StepOutcome::Failed;
        result.steps[0].req = req.map(Into::into);
        assert_eq!(step(&result.steps[0], &result).word, word);
        assert_eq!(measured(&result)[0].mark(), (word == "failed").then_some("failed"));
    }

    #[test]
    fn headlines_of_good_runs_say_what_they_cover() {
        let full = active(vec![scenario("CB-ACT-001", Outcome::Passed)]);
        assert_eq!(headline(&full).word, "conformant");
        assert_eq!(headline(&documented()).word, "all that was selected conforms");
        assert_eq!(scope(&documented()), "The verdict covers only what was selected (6 results).");
        let exempted =
            active(vec![scenario("CB-ACT-001", Outcome::Passed), scenario("CB-ACT-002", Outcome::Exempted)]);
        assert_eq!(headline(&exempted).word, "conformant with exemptions");
    }
}
