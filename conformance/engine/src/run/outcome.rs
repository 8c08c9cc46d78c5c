//! From what became of the steps to what is said of the scenario.
//!
//! Only a violated assertion that is marked with a requirement makes *nonconformant*. Everything else that goes wrong makes
//! *unknown*: an error of the cluster, an unmarked step, a panic of the suite.

use std::time::Duration;

use conformance_report::model::{Outcome, StepOutcome, Violation, WaitResult};

use super::{
    cluster::ApiError,
    oracle::NotJudged,
    wait::{Missed, seconds},
    world::millis,
};
use crate::{
    rows::{Class, Requirement, Row},
    scenario::JudgeKeys,
    waits::{Wait, Waits},
};

/// Why a step did not hold.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Failure {
    /// The cluster is not as wanted.
    Unmet {
        /// What was wanted.
        wanted: String,
        /// What was seen instead.
        missed: Missed,
    },
    /// Nothing is known: the cluster or the suite failed.
    Broken(String),
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self::Broken(error.detail())
    }
}

impl From<NotJudged> for Failure {
    fn from(error: NotJudged) -> Self {
        Self::Broken(error.to_string())
    }
}

/// What a step comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// Whether it held.
    pub outcome: StepOutcome,
    /// The wait that bounded it.
    pub wait: Option<WaitResult>,
    /// What went wrong.
    pub message: Option<String>,
    /// What it violates.
    pub violation: Option<Violation>,
    /// Why nothing is known, if that is so.
    pub unknown: Option<String>,
    /// The scenario goes on.
    pub goes_on: bool,
}

/// Judges step `number`, which held after some time of waiting or did not.
#[must_use]
pub fn judge(
    number: usize,
    keys: JudgeKeys,
    waits: &Waits,
    held: &Result<Option<Duration>, Failure>,
) -> Judged {
    let elapsed = match held {
        Ok(elapsed) => *elapsed,
        Err(Failure::Unmet { missed, .. }) => Some(missed.elapsed),
        Err(Failure::Broken(_)) => None,
    };
    let wait = keys.within.zip(elapsed).map(|(wait, elapsed)| measure(wait, elapsed, waits));
    let mut judged = Judged {
        outcome: StepOutcome::Passed,
        wait,
        message: None,
        violation: None,
        unknown: None,
        goes_on: true,
    };
    match held {
        Ok(_) => {
            if let Some(late) = lateness(keys, judged.wait.as_ref()) {
                judged.outcome = StepOutcome::Failed;
                judged.message = Some(late.observed.clone());
                judged.violation = Some(Violation { step: number, ..late });
            }
        }
        Err(Failure::Unmet { wanted, missed }) => {
            let seen = &missed.last.seen;
            let history = &missed.history;
            judged.outcome = StepOutcome::Failed;
            judged.message = Some(format!("wanted {wanted}; saw {seen}; {history}"));
            match keys.req {
                Some(req) if judges(req) => {
                    judged.goes_on = false;
                    judged.violation = Some(Violation {
                        req: req.to_string(),
                        step: number,
                        wanted: wanted.clone(),
                        observed: seen.clone(),
                        diff: missed.last.diff.clone(),
                        history: history.clone(),
                    });
                }
                // recorded only
                Some(_) => {}
                None => {
                    judged.goes_on = false;
                    judged.unknown = Some(format!("step {number}: wanted {wanted}; saw {seen}; {history}"));
                }
            }
        }
        Err(Failure::Broken(why)) => {
            judged.outcome = StepOutcome::Failed;
            judged.message = Some(why.clone());
            judged.goes_on = false;
            judged.unknown = Some(format!("step {number}: {why}"));
        }
    }
    judged
}

fn judges(req: Requirement) -> bool {
    !req.0.has(Class::Info)
}

/// The wait as the report has it. Slow is what took more than half of the patience where no source sets a limit.
fn measure(wait: Wait, elapsed: Duration, waits: &Waits) -> WaitResult {
    let patience = waits.patience(wait);
    let limit = waits.limit(wait).map(|limit| limit.duration);
    WaitResult {
        name: wait.name().to_owned(),
        elapsed_ms: millis(elapsed),
        limit_ms: limit.map(millis),
        patience_ms: millis(patience),
        slow: limit.is_none() && !wait.is_length() && elapsed > patience / 2,
    }
}

fn lateness(keys: JudgeKeys, wait: Option<&WaitResult>) -> Option<Violation> {
    let (req, wait) = keys.req.filter(|req| judges(*req)).zip(wait)?;
    let limit = wait.limit_ms.filter(|limit| wait.elapsed_ms > *limit)?;
    let limit = seconds(Duration::from_millis(limit));
    let elapsed = seconds(Duration::from_millis(wait.elapsed_ms));
    Some(Violation {
        req: req.to_string(),
        step: 0,
        wanted: format!("within {limit} ({})", wait.name),
        observed: format!("late: it took {elapsed}, and {limit} are documented"),
        diff: None,
        history: "the state itself was right in the end".to_owned(),
    })
}

/// What is said of the scenario, and why.
#[must_use]
pub fn conclude(violations: &[Violation], unknown: Option<&str>) -> (Outcome, Option<String>) {
    if let Some(Violation { req, step, wanted, observed, .. }) = violations.first() {
        let says = Row::find(req).map(|row| format!(" ({})", row.title)).unwrap_or_default();
        let reason = format!("{req}{says}, step {step}: wanted {wanted}; saw {observed}");
        return (Outcome::Nonconformant, Some(reason));
    }
    match unknown {
        Some(why) => (Outcome::Unknown, Some(why.to_owned())),
        None => (Outcome::Passed, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        implementation::Dialect,
        rows::Row,
        run::wait::Unmet,
        waits::{ClusterKind, Waits},
    };
    use rstest::rstest;

    fn keys(req: Option<&str>) -> JudgeKeys {
        let req = req.map(|id| Requirement(Row::find(id).unwrap()));
        JudgeKeys { req, within: Some(Wait::Resolve), ..JudgeKeys::default() }
    }

    fn unmet() -> Failure {
        let missed = Missed {
            last: Unmet { seen: "2".to_owned(), diff: Some("- 3\n+ 2\n".to_owned()) },
            elapsed: Duration::from_secs(45),
            history: "so for the last 40.0 s of 45.0 s; 1 change was seen".to_owned(),
        };
        Failure::Unmet { wanted: "3".to_owned(), missed }
    }

    fn judged(req: Option<&str>, dialect: Option<Dialect>, held: Result<u64, Failure>) -> Judged {
        let waits = Waits::new(ClusterKind::Embedded, dialect);
        judge(4, keys(req), &waits, &held.map(|seconds| Some(Duration::from_secs(seconds))))
    }

    const KARPENTER: Option<Dialect> = Some(Dialect::Karpenter);

    #[rstest]
    #[case::in_time(Some("V1"), KARPENTER, Ok(29), Outcome::Passed, true)]
    #[case::late_by_a_written_limit(Some("V1"), KARPENTER, Ok(31), Outcome::Nonconformant, true)]
    #[case::late_but_unmarked(None, KARPENTER, Ok(31), Outcome::Passed, true)]
    #[case::no_written_limit(Some("V1"), None, Ok(31), Outcome::Passed, true)]
    #[case::marked_and_unmet(Some("V1"), None, Err(unmet()), Outcome::Nonconformant, false)]
    #[case::recorded_only(Some("V42"), None, Err(unmet()), Outcome::Passed, true)]
    #[case::unmarked_and_unmet(None, None, Err(unmet()), Outcome::Unknown, false)]
    #[case::marked_but_broken(Some("V1"), None, Err(Failure::Broken("no answer".to_owned())), Outcome::Unknown, false)]
    fn outcomes(
        #[case] req: Option<&str>,
        #[case] dialect: Option<Dialect>,
        #[case] held: Result<u64, Failure>,
        #[case] expected: Outcome,
        #[case] goes_on: bool,
    ) {
        let judged = judged(req, dialect, held);
        let violations: Vec<_> = judged.violation.into_iter().collect();
        let (outcome, reason) = conclude(&violations, judged.unknown.as_deref());
        assert_eq!((outcome, judged.goes_on), (expected, goes_on));
        assert_eq!(reason.is_none(), outcome == Outcome::Passed);
    }

    #[test]
    fn slow_is_a_mark_only_without_a_limit() {
        let slow = |dialect, seconds| judged(Some("V1"), dialect, Ok(seconds)).wait.unwrap().slow;
        assert_eq!((slow(None, 22), slow(None, 23), slow(KARPENTER, 29)), (false, true, false));
    }

    #[test]
    fn a_violation_outweighs_what_is_unknown() {
        let violation = judged(Some("V1"), None, Err(unmet())).violation.unwrap();
        let (outcome, reason) = conclude(&[violation], Some("the API server went away"));
        assert_eq!(outcome, Outcome::Nonconformant);
        assert_eq!(reason.as_deref(), Some("V1 (template, replicas 5: 5), step 4: wanted 3; saw 2"));
    }

    #[test]
    fn a_violation_says_everything() {
        let violation = judged(Some("V1"), None, Err(unmet())).violation.unwrap();
        insta::assert_json_snapshot!(violation, @r#"
        {
          "req": "V1",
          "step": 4,
          "wanted": "3",
          "observed": "2",
          "diff": "- 3\n+ 2\n",
          "history": "so for the last 40.0 s of 45.0 s; 1 change was seen"
        }
        "#);
    }
}
