//! Markdown, as the summary of a CI job.

use super::words::{self, Tone};
use crate::model::{Report, ScenarioResult};

impl Report {
    /// The report as GitHub Markdown: verdicts, what went wrong, and all results folded away.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let headline = words::headline(self);
        let mut out = format!(
            "## {} CapacityBuffer conformance: {}\n\n{}. {} {}.\n",
            headline.sign,
            headline.word,
            escaped(&words::subject(self)),
            words::scope(self),
            words::totals_line(self)
        );
        if !self.profiles.is_empty() {
            out += "\n| Profile | Verdict |\n| --- | --- |\n";
        }
        for (profile, verdict) in &self.profiles {
            let look = words::profile_verdict(*verdict);
            out += &format!("| {} | {} {} |\n", words::profile(*profile), look.sign, look.word);
        }
        for incident in &self.incidents {
            out += &format!("\n> {}\n", escaped(&incident.message));
        }
        if !self.leaks.is_empty() {
            out += "\nLeft behind:\n\n";
        }
        for leak in &self.leaks {
            out += &format!(
                "* {} {} (by {})\n",
                escaped(&leak.kind),
                escaped(&leak.name),
                escaped(&leak.scenario)
            );
        }
        let bad: Vec<_> =
            words::shown(self).filter(|r| words::outcome(r.outcome).tone == Tone::Bad).collect();
        if !bad.is_empty() {
            out += "\n### Violations\n";
        }
        for result in bad {
            out += &violations(result, self);
        }
        out += &format!(
            "\n<details><summary>All {}</summary>\n\n\
             | Scenario | Case | Verdict | Measured waits | Why |\n| --- | --- | --- | --- | --- |\n",
            words::count(words::shown(self).count(), "result")
        );
        for result in words::shown(self) {
            out += &row(result, self);
        }
        out += "\n</details>\n";
        out
    }
}

fn violations(result: &ScenarioResult, report: &Report) -> String {
    let aside = words::aside(result, report).map(|a| format!(" ({a})")).unwrap_or_default();
    let mut out = format!("\n**{}**{aside}: {}\n", escaped(&words::name(result)), escaped(&result.title));
    for violation in &result.violations {
        out += &format!(
            "\n* step {}, {}: wanted {}; seen {}; {}\n",
            violation.step,
            escaped(&violation.req),
            escaped(&violation.wanted),
            escaped(&violation.observed),
            escaped(&violation.history)
        );
        if let Some(diff) = &violation.diff {
            // A fence longer than any run of backticks inside cannot be closed from inside.
            let longest = diff.split(|c| c != '`').map(str::len).max().unwrap_or(0);
            let fence = "`".repeat(longest.max(2) + 1);
            out += &format!("\n{fence}diff\n{}\n{fence}\n", diff.trim_end());
        }
    }
    out
}

fn row(result: &ScenarioResult, report: &Report) -> String {
    let look = words::outcome(result.outcome);
    let aside = words::aside(result, report).map(|a| format!(", {a}")).unwrap_or_default();
    let waits: Vec<String> = words::measured(result).iter().map(|m| escaped(&m.to_string())).collect();
    format!(
        "| {} | {} | {} {}{aside} | {} | {} |\n",
        escaped(&format!("{} {}", result.id, result.name)),
        escaped(result.case.as_deref().unwrap_or_default()),
        look.sign,
        look.word,
        waits.join("<br>"),
        escaped(result.reason.as_deref().unwrap_or_default())
    )
}

/// Text that came from outside, on one line and without any meaning in Markdown or HTML.
fn escaped(text: &str) -> String {
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
