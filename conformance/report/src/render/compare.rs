//! Several reports beside each other: in what implementations, or versions of one, differ.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{markdown::escaped, words};
use crate::model::{Outcome, Report, ScenarioResult};

/// What became of each scenario, or case of one, in each of several reports.
#[derive(Debug)]
pub struct Comparison<'a> {
    reports: &'a [Report],
    /// By id and case: one entry for each report that has one.
    rows: BTreeMap<(&'a str, Option<&'a str>), Vec<Option<&'a ScenarioResult>>>,
}

impl<'a> Comparison<'a> {
    /// Puts reports beside each other.
    #[must_use]
    pub fn of(reports: &'a [Report]) -> Self {
        let mut rows = BTreeMap::new();
        for (column, report) in reports.iter().enumerate() {
            for result in report.results.iter().filter(|result| result.catalogue) {
                let row = rows
                    .entry((&*result.id, result.case.as_deref()))
                    .or_insert_with(|| vec![None; reports.len()]);
                row[column] = Some(result);
            }
        }
        Self { reports, rows }
    }

    /// The rows in which something differs, or is violated.
    fn different(&self) -> impl Iterator<Item = (&ScenarioResult, &[Option<&'a ScenarioResult>])> {
        self.rows.values().filter_map(|row| {
            let outcomes: Vec<_> = row.iter().map(|result| result.map(|result| result.outcome)).collect();
            let violated = outcomes.contains(&Some(Outcome::Nonconformant));
            let differs = outcomes.iter().any(|outcome| *outcome != outcomes[0]);
            let any = row.iter().flatten().next()?;
            (violated || differs).then_some((*any, &**row))
        })
    }

    /// Whether no report differs from another, and none holds a violation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.different().next().is_none()
    }

    /// Markdown: one table, and below it for each violation what the text wants, what was seen, and where the text is.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut text = String::new();
        // writing to a String can't fail
        let mut line = |content: String| {
            let _ = writeln!(text, "{content}");
        };
        let names: Vec<_> = self.reports.iter().map(|report| escaped(&words::subject(report))).collect();
        line(format!("| Scenario | Case | Behaviour | {} |", names.join(" | ")));
        line(format!("| --- | --- | --- |{}", " --- |".repeat(names.len())));
        for (any, row) in self.different() {
            let outcomes: Vec<_> = row
                .iter()
                .map(|result| result.map_or("–", |result| words::outcome(result.outcome).word))
                .collect();
            let case = any.case.as_deref().unwrap_or_default();
            line(format!(
                "| {} {} | {} | {} | {} |",
                any.id,
                any.name,
                escaped(case),
                escaped(&any.title),
                outcomes.join(" | ")
            ));
        }
        for (any, row) in self.different() {
            let violated = row.iter().zip(&names).filter_map(|(result, name)| Some(((*result)?, name)));
            let violated: Vec<_> = violated.filter(|(result, _)| !result.violations.is_empty()).collect();
            if violated.is_empty() {
                continue;
            }
            let case = any.case.as_ref().map(|case| format!(", case {}", escaped(case))).unwrap_or_default();
            line(format!("\n### {} {}{case}\n", any.id, escaped(&any.title)));
            for (result, name) in violated {
                for violation in &result.violations {
                    line(format!(
                        "* {name}, row {}: wanted `{}`; seen `{}`",
                        violation.req,
                        quoted(&violation.wanted),
                        quoted(&violation.observed)
                    ));
                }
            }
            for source in &any.sources {
                line(format!("* written down: [{}]({})", escaped(&source.title), source.reference));
            }
        }
        text
    }
}

/// Text between backquotes, on one line.
fn quoted(text: &str) -> String {
    text.replace('`', "'").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn what_differs_and_what_is_violated_is_told() {
        let mut other = samples::active(vec![
            samples::scenario("CB-ACT-001", Outcome::Nonconformant),
            samples::scenario("CB-ACT-002", Outcome::Passed),
            samples::scenario("CB-ACT-004", Outcome::Nonconformant),
        ]);
        other.implementation.version = "2.0.0".to_owned();
        let one = samples::active(vec![
            samples::scenario("CB-ACT-001", Outcome::Passed),
            samples::scenario("CB-ACT-002", Outcome::Passed),
            samples::scenario("CB-ACT-003", Outcome::Passed),
            samples::scenario("CB-ACT-004", Outcome::Nonconformant),
        ]);
        let reports = [one, other];
        let comparison = Comparison::of(&reports);
        assert!(!comparison.is_empty());
        insta::assert_snapshot!(comparison.to_markdown());
    }

    #[test]
    fn equal_reports_do_not_differ() {
        let one = samples::active(vec![samples::scenario("CB-ACT-001", Outcome::Passed)]);
        assert!(Comparison::of(&[one.clone(), one]).is_empty());
    }
}
