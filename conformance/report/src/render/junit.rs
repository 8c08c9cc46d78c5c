//! JUnit: one suite a scenario, its cases as test cases.
//!
//! A violation is a failure; *unknown* and *could not run* are errors; what did not run is skipped with its kind. What
//! never counts for a verdict cannot fail here either, so that CI is red exactly when the suite is; the user's own
//! scenarios are the user's and fail as they are.

use std::time::Duration;

use quick_junit::{
    NonSuccessKind, Property, Report as Junit, TestCase, TestCaseStatus, TestRerun, TestSuite,
};

use super::words;
use crate::error::ReportError;
use crate::model::{Outcome, Report, ScenarioResult};

impl Report {
    /// The report as JUnit XML.
    pub fn to_junit(&self) -> Result<String, ReportError> {
        let mut junit = Junit::new(format!("{} {}", self.suite.name, self.suite.version));
        let mut run_time = Duration::ZERO;
        let results: Vec<&ScenarioResult> = words::shown(self).collect();
        for cases in results.chunk_by(|a, b| a.id == b.id && a.catalogue == b.catalogue) {
            let mut time = Duration::ZERO;
            let Some(first) = cases.first() else { continue };
            let mut suite = TestSuite::new(format!("{} {}", first.id, first.name));
            suite.add_properties(properties(first, self));
            for result in cases {
                let took = Duration::from_millis(result.duration_ms);
                let mut case =
                    TestCase::new(result.case.as_ref().unwrap_or(&result.name), status(result, self));
                case.set_classname(first.id.as_str()).set_time(took);
                let waits: Vec<String> = words::measured(result).iter().map(ToString::to_string).collect();
                if !waits.is_empty() {
                    case.set_system_out(waits.join("\n"));
                }
                suite.add_test_case(case);
                time += took;
            }
            suite.set_time(time);
            run_time += time;
            junit.add_test_suite(suite);
        }
        junit.set_time(run_time);
        Ok(junit.to_string()?)
    }
}

/// What a reader of the suite should know.
fn properties(result: &ScenarioResult, report: &Report) -> Vec<Property> {
    let profiles: Vec<&str> = result.profiles.iter().map(|p| words::profile(*p)).collect();
    let sources: Vec<&str> = result.sources.iter().map(|s| s.reference.as_str()).collect();
    [
        ("title", result.title.clone()),
        ("file", result.file.clone()),
        ("level", words::level(result.level).to_owned()),
        ("profiles", profiles.join(", ")),
        ("features", result.features.join(", ")),
        ("sources", sources.join(" ")),
        ("run", report.run_id.clone()),
        ("implementation", words::subject(report)),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_empty())
    .map(|(name, value)| Property::new(name, value))
    .collect()
}

fn status(result: &ScenarioResult, report: &Report) -> TestCaseStatus {
    let word = words::outcome(result.outcome).word;
    let reason = result.reason.as_deref().unwrap_or(word);
    let aside = words::aside(result, report).filter(|_| result.catalogue);
    let mut status = match result.outcome {
        Outcome::Passed => return TestCaseStatus::success(),
        Outcome::Flaky => {
            let mut first = TestRerun::new(NonSuccessKind::Failure);
            first.set_type(word).set_message(reason);
            return TestCaseStatus::Success { flaky_runs: vec![first] };
        }
        Outcome::Nonconformant if aside.is_none() => TestCaseStatus::non_success(NonSuccessKind::Failure),
        Outcome::Unknown | Outcome::CouldNotRun if aside.is_none() => {
            TestCaseStatus::non_success(NonSuccessKind::Error)
        }
        _ => TestCaseStatus::skipped(),
    };
    status.set_type(word).set_message(match aside {
        Some(aside) => format!("{aside}: {reason}"),
        None => reason.to_owned(),
    });
    let details: Vec<String> = result
        .violations
        .iter()
        .map(|v| {
            format!(
                "step {} ({})\nwanted: {}\nseen: {}\n{}\n{}",
                v.step,
                v.req,
                v.wanted,
                v.observed,
                v.history,
                v.diff.as_deref().unwrap_or_default()
            )
        })
        .collect();
    if !details.is_empty() {
        status.set_description(details.join("\n"));
    }
    status
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::model::Level;
    use crate::samples::{self, scenario};

    #[test]
    fn of_a_full_run() {
        insta::assert_snapshot!(samples::full().to_junit().unwrap());
    }

    #[rstest]
    #[case(Outcome::Passed, Level::Core, true, "")]
    #[case(Outcome::Flaky, Level::Core, true, "<flakyFailure")]
    #[case(Outcome::Nonconformant, Level::Core, true, "<failure")]
    #[case(Outcome::Unknown, Level::Core, true, "<error")]
    #[case(Outcome::CouldNotRun, Level::Core, true, "<error")]
    #[case(Outcome::NotRun, Level::Core, true, "<skipped")]
    #[case(Outcome::NotApplicable, Level::Core, true, "<skipped")]
    #[case(Outcome::Excluded, Level::Core, true, "<skipped")]
    #[case(Outcome::Exempted, Level::Core, true, "<skipped")]
    #[case::provisional(Outcome::Nonconformant, Level::Provisional, true, "<skipped")]
    #[case::provisional(Outcome::Unknown, Level::Provisional, true, "<skipped")]
    #[case::own(Outcome::Nonconformant, Level::Core, false, "<failure")]
    fn outcomes(
        #[case] outcome: Outcome,
        #[case] level: Level,
        #[case] catalogue: bool,
        #[case] element: &str,
    ) {
        let result = ScenarioResult { level, catalogue, ..scenario("CB-ACT-001", outcome) };
        let xml = samples::active(vec![result]).to_junit().unwrap();
        for known in ["<flakyFailure", "<failure", "<error", "<skipped"] {
            assert_eq!(xml.contains(known), known == element, "{known} in {xml}");
        }
    }
}
