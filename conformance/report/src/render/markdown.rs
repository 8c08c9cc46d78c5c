//! Markdown, as the summary of a CI job.

use super::words::{self, Tone};
use crate::model::{Report, ScenarioResult};

impl Report {
    /// The report as GitHub Markdown: verdicts, what went wrong, and all results folded away.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let headline = words::headline(self);
        let mut lines = vec![
            format!("## {} CapacityBuffer conformance: {}\n", headline.sign, headline.word),
            format!(
                "{}. {} {}.\n",
                escaped(&words::subject(self)),
                words::scope(self),
                words::totals_line(self)
            ),
        ];
        if !self.profiles.is_empty() {
            lines.push("| Profile | Verdict |\n| --- | --- |".to_owned());
        }
        for (profile, verdict) in &self.profiles {
            let look = words::profile_verdict(*verdict);
            lines.push(format!("| {} | {} {} |", words::profile(*profile), look.sign, look.word));
        }
        for incident in &self.incidents {
            lines.push(format!("\n> {}", escaped(&incident.message)));
        }
        if !self.leaks.is_empty() {
            lines.push("\nLeft behind:\n".to_owned());
        }
        for leak in &self.leaks {
            lines.push(format!("* {}", escaped(&words::leak(leak))));
        }
        let bad = |result: &&ScenarioResult| words::outcome(result.outcome).tone == Tone::Bad;
        if words::shown(self).any(|result| bad(&result)) {
            lines.push("\n### Violations".to_owned());
        }
        for result in words::shown(self).filter(bad) {
            lines.extend(violations(result, self));
        }
        lines.push(format!(
            "\n<details><summary>All {}</summary>\n\n\
             | Scenario | Case | Verdict | Measured waits | Why |\n| --- | --- | --- | --- | --- |",
            words::count(words::shown(self).count(), "result")
        ));
        lines.extend(words::shown(self).map(|result| row(result, self)));
        lines.push("\n</details>\n".to_owned());
        lines.join("\n")
    }
}

fn violations(result: &ScenarioResult, report: &Report) -> Vec<String> {
    let aside = words::aside(result, report).map(|a| format!(" ({a})")).unwrap_or_default();
    let name = escaped(&words::name(result));
    let mut lines = vec![format!("\n**{name}**{aside}: {}", escaped(&result.title))];
    for violation in &result.violations {
        lines.push(format!("\n* {}", escaped(&words::violation(violation))));
        if let Some(diff) = &violation.diff {
            // A fence longer than any run of backticks inside cannot be closed from inside.
            let longest = diff.split(|c| c != '`').map(str::len).max().unwrap_or(0);
            let fence = "`".repeat(longest.max(2) + 1);
            lines.push(format!("\n{fence}diff\n{}\n{fence}", diff.trim_end()));
        }
    }
    lines
}

fn row(result: &ScenarioResult, report: &Report) -> String {
    let look = words::outcome(result.outcome);
    let aside = words::aside(result, report).map(|a| format!(", {a}")).unwrap_or_default();
    let waits: Vec<String> = words::measured(result).iter().map(|m| escaped(&m.to_string())).collect();
    format!(
        "| {} | {} | {} {}{aside} | {} | {} |",
        escaped(&format!("{} {}", result.id, result.name)),
        escaped(result.case.as_deref().unwrap_or_default()),
        look.sign,
        look.word,
        waits.join("<br>"),
        escaped(result.reason.as_deref().unwrap_or_default())
    )
}

/// Text that came from outside, on one line and without any meaning in Markdown or HTML.
pub(super) fn escaped(text: &str) -> String {
    words::one_line(text).chars().fold(String::new(), |mut out, c| {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '~' | '#' => {
                out.push('\\');
                out.push(c);
            }
            _ => out.push(c),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use crate::model::Outcome;
    use crate::samples;

    #[test]
    fn of_a_full_run() {
        insta::assert_snapshot!(samples::full().to_markdown());
    }

    #[test]
    fn of_a_selection_that_passed() {
        insta::assert_snapshot!(samples::documented().to_markdown());
    }

    #[test]
    fn a_diff_cannot_leave_its_fence() {
        let mut result = samples::scenario("CB-ACT-001", Outcome::Nonconformant);
        result.violations[0].diff = Some("- ```\n+ ````\n# out".into());
        let text = samples::active(vec![result]).to_markdown();
        assert!(text.contains("\n`````diff\n- ```\n+ ````\n# out\n`````\n"), "{text}");
    }
}
