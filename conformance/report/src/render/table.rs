//! The table for a terminal.

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{ColumnConstraint, ContentArrangement, LineStyle, Row, Table};

use super::words::{self, Look, OUTCOMES, Tone};
use crate::model::{Outcome, Report, ScenarioResult};
use crate::verdict;

/// How the table is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct TableStyle {
    /// Columns of the terminal; without it nothing is wrapped.
    pub width: Option<u16>,
    /// Whether to use ANSI colours (the caller honours `NO_COLOR` and asks whether it is a terminal).
    pub colour: bool,
}

impl Report {
    /// The report as a table: each result with its measured waits, what went wrong, totals, verdicts.
    #[must_use]
    pub fn to_table(&self, style: TableStyle) -> String {
        let (suite, own): (Vec<_>, Vec<_>) = words::shown(self).partition(|r| r.catalogue);
        let mut lines = vec![format!("{} {}: {}", self.suite.name, self.suite.version, words::subject(self))];
        if !suite.is_empty() {
            lines.extend([String::new(), grid(&suite, self, style)]);
        }
        if !own.is_empty() {
            lines.push("\nOwn scenarios, never part of the verdict".to_owned());
            lines.push(grid(&own, self, style));
        }
        for result in words::shown(self).filter(|r| verdict::ran(r.outcome) && r.outcome != Outcome::Passed) {
            lines.extend(problem(result));
        }
        lines.push(String::new());
        for incident in &self.incidents {
            lines.push(format!("Incident  {}", words::one_line(&incident.message)));
        }
        for leak in &self.leaks {
            lines.push(format!("Leak      {}", words::leak(leak)));
        }
        let all = words::count(words::shown(self).count(), "result");
        lines.push(format!("Totals    {all}: {}", words::totals_line(self)));
        for (profile, verdict) in &self.profiles {
            let verdict = painted(words::profile_verdict(*verdict), style.colour);
            lines.push(format!("Profile   {:<14} {verdict}", words::profile(*profile)));
        }
        lines.push(format!(
            "Verdict   {}, exit code {}. {}\n",
            painted(words::headline(self), style.colour),
            self.exit_code,
            words::scope(self)
        ));
        lines.join("\n")
    }
}

/// The rows of some results. Cases have a column only if there are any.
fn grid(results: &[&ScenarioResult], report: &Report, style: TableStyle) -> String {
    let cases = results.iter().any(|r| r.case.is_some());
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()));
    if let Some(width) = style.width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    let row = |scenario: String, case: String, verdict: String, waits: String| {
        let mut cells = vec![scenario];
        if cases {
            cells.push(case);
        }
        cells.extend([verdict, waits]);
        Row::from(cells)
    };
    table.set_header(row(
        "Scenario".into(),
        "Case".into(),
        "Verdict".into(),
        "Measured waits, or why not".into(),
    ));
    for result in results {
        let look = words::outcome(result.outcome);
        let aside = words::aside(result, report).filter(|_| result.catalogue);
        let waits: Vec<String> = words::measured(result).iter().map(ToString::to_string).collect();
        table.add_row(row(
            words::one_line(&format!("{} {}", result.id, result.name)),
            words::one_line(result.case.as_deref().unwrap_or_default()),
            format!("{} {}{}", look.sign, look.word, aside.map(|a| format!("\n  {a}")).unwrap_or_default()),
            if verdict::ran(result.outcome) {
                waits.join("\n")
            } else {
                words::one_line(result.reason.as_deref().unwrap_or_default())
            },
        ));
    }
    // The verdict is what everybody looks for: it is never broken.
    if let Some(verdict) = table.column_mut(usize::from(cases) + 1) {
        verdict.set_constraint(ColumnConstraint::ContentWidth);
    }
    let text: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    let text = text.join("\n");
    if style.colour { paint(text) } else { text }
}

/// Why a result is not good.
fn problem(result: &ScenarioResult) -> Vec<String> {
    let mut lines = vec![format!("\n{}: {}", words::name(result), words::outcome(result.outcome).word)];
    // The violations say the same in more words.
    if let Some(reason) = result.reason.as_ref().filter(|_| result.violations.is_empty()) {
        lines.push(format!("  {}", words::one_line(reason)));
    }
    for violation in &result.violations {
        lines.push(format!("  {}", words::violation(violation)));
        let diff = violation.diff.iter().flat_map(|diff| diff.lines());
        lines.extend(diff.map(|line| format!("    {}", line.replace(char::is_control, " ").trim_end())));
    }
    let sources = result.sources.iter().filter(|_| !result.violations.is_empty());
    lines.extend(sources.map(|source| {
        let (title, reference) = (words::one_line(&source.title), words::one_line(&source.reference));
        format!("  written down: {title}, {reference}")
    }));
    lines.push(format!("  again: bufconf run {}", words::one_line(&result.name)));
    lines
}

/// Colours the verdicts in a table that is already laid out, so that colours never change the layout.
fn paint(table: String) -> String {
    OUTCOMES.into_iter().map(words::outcome).fold(table, |text, look| {
        text.replace(&format!(" {} {} ", look.sign, look.word), &format!(" {} ", painted(look, true)))
            .replace(&format!(" {} {}\n", look.sign, look.word), &format!(" {}\n", painted(look, true)))
    })
}

/// Sign and word, in colour if wanted.
fn painted(look: Look, colour: bool) -> String {
    let text = format!("{} {}", look.sign, look.word);
    let code = match look.tone {
        Tone::Good => "32",
        Tone::Bad => "1;31",
        Tone::Warn => "33",
        Tone::Dim => "2",
    };
    if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn width(line: &str) -> usize {
        line.chars().count()
    }

    #[test]
    fn of_a_full_run() {
        insta::assert_snapshot!(samples::full().to_table(TableStyle { width: Some(110), colour: false }));
    }

    #[test]
    fn of_a_selection_that_passed() {
        insta::assert_snapshot!(samples::documented().to_table(TableStyle { width: None, colour: false }));
    }

    #[test]
    fn of_nothing() {
        insta::assert_snapshot!(samples::report(vec![]).to_table(TableStyle::default()));
    }

    #[test]
    fn tables_keep_to_the_width_and_colours_change_nothing_else() {
        for report in [samples::full(), samples::documented()] {
            for columns in [60, 80, 110, 200] {
                let plain = report.to_table(TableStyle { width: Some(columns), colour: false });
                let grid = plain.lines().filter(|l| l.starts_with('─') || l.starts_with('═'));
                assert!(grid.clone().count() > 2);
                for line in grid {
                    assert!(width(line) <= usize::from(columns), "{columns}: {line}");
                }
                let coloured = report.to_table(TableStyle { width: Some(columns), colour: true });
                assert!(coloured.contains("\x1b[32m✔ passed\x1b[0m"));
                let codes = ["\x1b[32m", "\x1b[1;31m", "\x1b[33m", "\x1b[2m", "\x1b[0m"];
                let stripped = codes.iter().fold(coloured, |text, code| text.replace(code, ""));
                assert_eq!(stripped, plain);
            }
        }
    }

    #[test]
    fn what_comes_from_outside_cannot_send_escape_codes() {
        let mut result = samples::scenario("CB-ACT-001", Outcome::Nonconformant);
        let violation = &mut result.violations[0];
        for text in [&mut result.name, &mut violation.wanted, &mut violation.req] {
            text.push_str("\x1b[2J\r\n");
        }
        violation.diff = Some("+ \x1b[2J\r\n".into());
        result.reason = Some("\x1b]0;title\x07".into());
        let table = samples::active(vec![result]).to_table(TableStyle::default());
        assert!(!table.contains(|c: char| c.is_control() && c != '\n'), "{table:?}");
    }
}
