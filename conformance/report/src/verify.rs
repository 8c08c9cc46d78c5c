//! Verification: what a report says of itself must follow from its entries.

use std::path::{Component, Path};

use crate::model::{Outcome, Report, ScenarioResult, StepOutcome};
use crate::order;
use crate::verdict::{self, RunVerdict};

/// A report that contradicts itself. Each problem is one sentence.
#[derive(Debug, thiserror::Error)]
#[error("report contradicts itself: {}", .0.join("; "))]
pub struct VerifyError(pub Vec<String>);

impl Report {
    /// Recomputes profile verdicts, leaks and the exit code from the entries, checks that each entry agrees with its own
    /// steps, and that everything is in its order.
    pub fn verify(&self) -> Result<(), VerifyError> {
        let mut problems = Vec::new();
        let mut sorted = self.clone();
        order::sort(&mut sorted);
        if sorted != *self {
            problems.push("lists are not in their order".to_owned());
        }
        for pair in sorted.results.windows(2) {
            if let [a, b] = pair
                && order::compare(a, b).is_eq()
            {
                problems.push(format!("{} has two entries", name(a)));
            }
        }
        let profiles = verdict::profiles(&self.results, &self.implementation, self.scope);
        if profiles != self.profiles {
            problems.push(format!("profiles say {:?}, entries say {profiles:?}", self.profiles));
        }
        for leak in self.results.iter().flat_map(|r| &r.leaks) {
            if !self.leaks.contains(leak) {
                problems.push(format!("leak {} {} of {} is not listed", leak.kind, leak.name, leak.scenario));
            }
        }
        let code = RunVerdict::of(self).exit_code();
        if code != self.exit_code {
            problems.push(format!("exit code is {}, entries say {code}", self.exit_code));
        }
        for result in &self.results {
            problems.extend(entry(result).into_iter().map(|problem| format!("{} {problem}", name(result))));
        }
        if problems.is_empty() { Ok(()) } else { Err(VerifyError(problems)) }
    }
}

/// Contradictions inside one entry.
fn entry(result: &ScenarioResult) -> Vec<String> {
    let mut problems = Vec::new();
    // A marked step may fail in a scenario that passed: its row may be one that is only recorded.
    let failed = result.steps.iter().find(|step| step.outcome == StepOutcome::Failed && step.req.is_none());
    match result.outcome {
        Outcome::Passed | Outcome::Flaky => {
            if let Some(step) = failed {
                problems.push(format!("passed, but step {} failed", step.number));
            }
            if !result.steps.iter().any(|step| step.outcome == StepOutcome::Passed) {
                problems.push("passed without a step that did".to_owned());
            }
            if result.outcome == Outcome::Passed && !result.violations.is_empty() {
                problems.push("passed with a violation".to_owned());
            }
            if (result.outcome == Outcome::Flaky) != (result.attempts > 1) {
                problems.push(format!("cannot be {:?} after {} attempt(s)", result.outcome, result.attempts));
            }
        }
        Outcome::Nonconformant if result.violations.is_empty() => {
            problems.push("is nonconformant without a violation".to_owned());
        }
        _ => {}
    }
    if result.outcome != Outcome::Passed && result.reason.is_none() {
        problems.push("gives no reason".to_owned());
    }
    for violation in &result.violations {
        if !result.steps.iter().any(|step| step.number == violation.step && step.req.is_some()) {
            problems.push(format!("has a violation at step {}, which has no requirement", violation.step));
        }
    }
    if Path::new(&result.file).components().any(|part| !matches!(part, Component::Normal(_))) {
        problems.push(format!("has a file outside of the scenarios folder: {}", result.file));
    }
    problems
}

/// Id and case.
fn name(result: &ScenarioResult) -> String {
    match &result.case {
        Some(case) => format!("{}/{case}", result.id),
        None => result.id.clone(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::model::{Profile, ProfileVerdict, Scope};
    use crate::samples;

    #[test]
    fn an_honest_report_verifies() {
        samples::full().verify().unwrap();
        samples::documented().verify().unwrap();
    }

    #[rstest]
    #[case::exit_code(|r: &mut Report| r.exit_code = 0, "exit code is 0, entries say 1")]
    #[case::profile(
        |r: &mut Report| { r.profiles.insert(Profile::BufferActive, ProfileVerdict::Conformant); },
        "profiles say"
    )]
    #[case::profile_left_out(|r: &mut Report| { r.profiles.remove(&Profile::BufferActive); }, "profiles say")]
    #[case::claim_dropped(|r: &mut Report| r.implementation.profiles.clear(), "profiles say")]
    #[case::scope(|r: &mut Report| r.scope = Scope::Selection, "profiles say")]
    #[case::entry_dropped(|r: &mut Report| r.results.retain(|e| e.outcome != Outcome::Nonconformant), "exit code is 1")]
    #[case::leak_hidden(|r: &mut Report| r.leaks.clear(), "is not listed")]
    #[case::doubled(|r: &mut Report| r.results.insert(0, r.results[0].clone()), "has two entries")]
    #[case::order(|r: &mut Report| r.results.reverse(), "lists are not in their order")]
    #[case::passed_after_all(
        |r: &mut Report| for e in &mut r.results { if e.outcome == Outcome::Nonconformant { e.outcome = Outcome::Passed } },
        "passed with a violation"
    )]
    #[case::no_violation(|r: &mut Report| for e in &mut r.results { e.violations.clear() }, "without a violation")]
    #[case::no_reason(|r: &mut Report| for e in &mut r.results { e.reason = None }, "gives no reason")]
    #[case::unmarked_step_failed(
        |r: &mut Report| for s in r.results.iter_mut().flat_map(|e| &mut e.steps) { s.outcome = StepOutcome::Failed },
        "passed, but step 1 failed"
    )]
    #[case::not_flaky(|r: &mut Report| for e in &mut r.results { e.attempts = 1 }, "cannot be Flaky")]
    #[case::nothing_done(|r: &mut Report| for e in &mut r.results { e.steps.clear() }, "passed without a step that did")]
    #[case::outside(|r: &mut Report| r.results[0].file = "/etc/passwd".into(), "outside of the scenarios folder")]
    #[case::above(|r: &mut Report| r.results[0].file = "../x.yaml".into(), "outside of the scenarios folder")]
    fn a_doctored_report_does_not(#[case] doctor: impl Fn(&mut Report), #[case] expected: &str) {
        let mut report = samples::full();
        doctor(&mut report);
        let error = report.verify().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
