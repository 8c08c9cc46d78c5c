//! The page: one file that needs nothing else, not even JavaScript.

use std::fmt::Display;

use askama::Template;
use jiff::Timestamp;

use super::lanes::Drawing;
use super::words::{self, Look, Measured};
use crate::error::ReportError;
use crate::model::{
    Outcome, Profile, ProfileVerdict, Report, ScenarioResult, StepResult, TimelineEvent, WaitResult,
    WaitSetting,
};
use crate::verdict;

/// Rows of the table of events that are shown; the rest is counted.
const MOST_EVENTS: usize = 400;

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    report: &'a Report,
    headline: Look,
    scope: String,
    processors: String,
    took: Option<String>,
    profiles: Vec<ProfileCard>,
    totals: Vec<(Look, usize)>,
    /// What decided that the verdict is not good: look, anchor, name.
    blame: Vec<(Look, String, String)>,
    sections: Vec<Section<'a>>,
    /// With limit and patience as text.
    waits: Vec<(&'a WaitSetting, String, String)>,
}

struct ProfileCard {
    name: &'static str,
    look: Look,
    counts: String,
}

/// Results under one heading.
struct Section<'a> {
    title: &'static str,
    note: &'static str,
    entries: Vec<Entry<'a>>,
}

/// One result.
struct Entry<'a> {
    /// Unique on the page, stable between runs.
    anchor: String,
    result: &'a ScenarioResult,
    look: Look,
    level: &'static str,
    profiles: String,
    took: String,
    aside: Option<&'static str>,
    waits: Vec<String>,
    steps: Vec<StepRow<'a>>,
    drawing: Option<Drawing>,
    /// With time and kind as text.
    events: Vec<(String, &'static str, &'a TimelineEvent)>,
    /// How many events there are, also those that are not shown.
    seen: String,
}

struct StepRow<'a> {
    step: &'a StepResult,
    look: Look,
    at: String,
    took: String,
    wait: Option<WaitCells<'a>>,
}

struct WaitCells<'a> {
    name: &'a str,
    mark: Option<&'static str>,
    limit: String,
    patience: String,
}

impl Report {
    /// The report as one HTML file.
    pub fn to_html(&self) -> Result<String, ReportError> {
        let (suite, own): (Vec<_>, Vec<_>) = words::shown(self).partition(|r| r.catalogue);
        let profile = |(profile, verdict): (&Profile, &ProfileVerdict)| ProfileCard {
            name: words::profile(*profile),
            look: words::profile_verdict(*verdict),
            counts: counts(self, *profile),
        };
        let page = Page {
            report: self,
            headline: words::headline(self),
            scope: words::scope(self),
            processors: words::count(self.environment.cpus, "processor"),
            took: took(self),
            profiles: self.profiles.iter().map(profile).collect(),
            totals: words::totals(self).into_iter().map(|(o, n)| (words::outcome(o), n)).collect(),
            blame: words::shown(self)
                .filter(|r| r.outcome != Outcome::Passed && verdict::counts(r, &self.implementation))
                .map(|r| (words::outcome(r.outcome), anchor(r), words::name(r)))
                .collect(),
            sections: [("Scenarios", "", suite), ("Own scenarios", "Never part of the verdict.", own)]
                .into_iter()
                .filter(|(.., results)| !results.is_empty())
                .map(|(title, note, results)| Section {
                    title,
                    note,
                    entries: results.into_iter().map(|result| Entry::new(result, self)).collect(),
                })
                .collect(),
            waits: self
                .waits
                .iter()
                .map(|w| (w, words::limit(w.limit_ms), words::bound(w.patience_ms)))
                .collect(),
        };
        Ok(page.render()?)
    }
}

impl<'a> Entry<'a> {
    fn new(result: &'a ScenarioResult, report: &Report) -> Self {
        let profiles: Vec<&str> = result.profiles.iter().map(|p| words::profile(*p)).collect();
        Self {
            anchor: anchor(result),
            result,
            look: words::outcome(result.outcome),
            level: words::level(result.level),
            profiles: profiles.join(", "),
            took: words::seconds(result.duration_ms),
            aside: words::aside(result, report).filter(|_| result.catalogue),
            waits: words::measured(result).iter().map(ToString::to_string).collect(),
            steps: result.steps.iter().map(|step| StepRow::new(step, result)).collect(),
            drawing: Drawing::new(result),
            events: result
                .timeline
                .iter()
                .take(MOST_EVENTS)
                .map(|event| (words::seconds(event.at_ms), words::lane(event.lane), event))
                .collect(),
            seen: words::count(result.timeline.len(), "event"),
        }
    }

    /// What failed is open from the start.
    fn open(&self) -> bool {
        matches!(self.result.outcome, Outcome::Nonconformant | Outcome::Unknown) && self.aside.is_none()
    }

    fn events_left_out(&self) -> usize {
        self.result.timeline.len() - self.events.len()
    }
}

impl<'a> StepRow<'a> {
    fn new(step: &'a StepResult, result: &ScenarioResult) -> Self {
        let cells = |wait: &'a WaitResult| WaitCells {
            name: &wait.name,
            mark: Measured { wait, times: 1, failed: false }.mark(),
            limit: words::limit(wait.limit_ms),
            patience: words::bound(wait.patience_ms),
        };
        Self {
            step,
            look: words::step(step, result),
            at: words::seconds(step.started_ms),
            took: words::seconds(step.duration_ms),
            wait: step.wait.as_ref().map(cells),
        }
    }
}

/// What the verdict of a profile is made of.
fn counts(report: &Report, profile: Profile) -> String {
    let counted: Vec<&ScenarioResult> =
        words::shown(report).filter(|r| verdict::counts_for(r, &report.implementation, profile)).collect();
    let parts = words::OUTCOMES.into_iter().filter_map(|outcome| {
        let n = counted.iter().filter(|r| r.outcome == outcome).count();
        (n > 0).then(|| format!("{n} {}", words::outcome(outcome).word))
    });
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { "nothing counts for it".to_owned() } else { parts.join(" · ") }
}

/// Id and case, with characters that a URL fragment would have to escape written as their codes.
fn anchor(result: &ScenarioResult) -> String {
    let own = if result.catalogue { "" } else { "own/" };
    let case = result.case.as_ref().map(|case| format!("/{case}")).unwrap_or_default();
    let encode = |byte: u8| match byte {
        b'-' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => char::from(byte).to_string(),
        b'/' => "--".to_owned(),
        _ => format!("_{byte:02x}"),
    };
    format!("{own}{}{case}", result.id).bytes().map(encode).collect()
}

/// How long the run took.
fn took(report: &Report) -> Option<String> {
    let start: Timestamp = report.started_at.parse().ok()?;
    let end: Timestamp = report.finished_at.parse().ok()?;
    let ms = end.as_millisecond().checked_sub(start.as_millisecond())?;
    u64::try_from(ms).ok().map(words::seconds)
}

/// The class of a line of a diff.
fn diff_class(line: &str) -> &'static str {
    match line.as_bytes().first() {
        Some(b'-') => "wanted",
        Some(b'+') => "seen",
        _ => "same",
    }
}

/// A link only where it leads somewhere harmless.
fn is_link(reference: &str) -> bool {
    reference.starts_with("https://") || reference.starts_with("http://")
}

/// A coordinate.
fn px(value: impl Display) -> String {
    format!("{value:.1}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::{Lane, Source};
    use crate::samples::{self, scenario};

    #[test]
    fn of_a_full_run() {
        insta::assert_snapshot!(samples::full().to_html().unwrap());
    }

    #[test]
    fn ids_are_unique_and_links_lead_to_them() {
        let mut report = samples::full();
        // Only the case tells these apart, and only before they are made plain.
        for case in ["a b", "a-b", "a/b"] {
            let result = ScenarioResult {
                case: Some(case.into()),
                timeline: report.results[0].timeline.clone(),
                ..scenario("CB-ACT-009", Outcome::Unknown)
            };
            report.results.push(result);
        }
        let html = report.to_html().unwrap();
        let values = |name: &'static str| {
            html.split(name).skip(1).map(|rest| rest.split('"').next().unwrap().to_owned())
        };
        let ids: Vec<String> = values(" id=\"").collect();
        let unique: BTreeSet<String> = ids.iter().cloned().collect();
        assert_eq!(ids.len(), unique.len());
        let mut links = 0;
        for target in values("href=\"#") {
            assert!(unique.contains(&target), "{target}");
            links += 1;
        }
        assert!(links >= 3);
        for names in values("aria-labelledby=\"") {
            assert!(names.split(' ').all(|name| unique.contains(name)), "{names}");
        }
    }

    #[test]
    fn what_comes_from_outside_stays_text() {
        let evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>";
        let mut result = scenario("CB-ACT-001", Outcome::Nonconformant);
        result.name = evil.into();
        result.title = evil.into();
        result.case = Some(evil.into());
        result.reason = Some(evil.into());
        result.file = evil.into();
        result.features = vec![evil.into()];
        result.steps[0].title = evil.into();
        result.steps[0].message = Some(evil.into());
        result.violations[0].diff = Some(evil.into());
        result.violations[0].observed = evil.into();
        let link = Source { title: "click".into(), reference: "javascript:alert(1)".into() };
        result.sources = vec![link];
        result.timeline =
            vec![TimelineEvent { at_ms: 1, lane: Lane::Node, object: evil.into(), what: evil.into() }];
        let mut report = samples::active(vec![result]);
        report.implementation.project = evil.into();
        let html = report.to_html().unwrap();
        assert!(!html.contains("<script") && !html.contains("<img") && !html.contains("href=\"javascript"));
        assert!(html.contains("<code>javascript:alert(1)</code>"));
    }

    #[test]
    fn the_page_needs_nothing_else() {
        let html = samples::full().to_html().unwrap();
        for loaded in ["<script", "<link", "<img", "<iframe", "@import", "src=", "url(http"] {
            assert!(!html.contains(loaded), "{loaded}");
        }
        assert!(html.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn long_lists_of_events_are_cut_and_say_so() {
        let mut result = scenario("CB-ACT-001", Outcome::Passed);
        let event =
            |at_ms| TimelineEvent { at_ms, lane: Lane::Node, object: "n".into(), what: "Ready=True".into() };
        result.timeline = (0..500).map(event).collect();
        let html = samples::active(vec![result]).to_html().unwrap();
        assert!(html.contains("The same as text: 500 events"));
        assert!(html.contains("100 later events are only in report.json."));
    }
}
