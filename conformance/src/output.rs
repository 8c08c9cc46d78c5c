//! What a run shows and writes.

use std::{fs, io::IsTerminal, path::Path, time::Duration};

use anyhow::{Context, Result};
use conformance_report::{
    TableStyle,
    model::{Outcome, Report, ScenarioResult},
};
use indicatif::{ProgressBar, ProgressStyle};

/// Progress on stderr: a live line on a terminal, plain lines elsewhere.
pub struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// For so many scenarios.
    #[must_use]
    pub fn new(scenarios: usize) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(scenarios as u64);
            if let Ok(style) =
                ProgressStyle::with_template("{spinner} {pos}/{len} scenarios, {elapsed} {msg}")
            {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Self { bar }
    }

    /// A line that stays.
    pub fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => eprintln!("{line}"),
        }
    }

    /// A scenario has ended.
    pub fn done(&self, results: &[ScenarioResult]) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
        let Some(first) = results.first() else { return };
        let bad: Vec<&ScenarioResult> =
            results.iter().filter(|result| result.outcome != Outcome::Passed).collect();
        let seconds: u64 = results.iter().map(|result| result.duration_ms).sum::<u64>() / 1000;
        if bad.is_empty() {
            self.say(&format!("passed  {} ({seconds} s)", first.name));
        }
        for result in bad {
            let case = result.case.as_deref().map(|case| format!(" [{case}]")).unwrap_or_default();
            self.say(&format!(
                "{:?}  {}{case}: {}",
                result.outcome,
                result.name,
                result.reason.as_deref().unwrap_or("no reason given")
            ));
        }
    }

    /// The run has ended.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Writes `report.json` and all that comes from it.
pub fn write(report: &Report, out: &Path) -> Result<()> {
    fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
    Ok(report.write_all(out)?)
}

/// Keeps the logs of kind nodes that could not join, beside the report.
pub fn keep_join_logs(joins: &Path, out: &Path) -> Result<()> {
    let entries = match fs::read_dir(joins) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(|| format!("reading {}", joins.display()))?,
    };
    let kept = out.join("join-logs");
    fs::create_dir_all(&kept).with_context(|| format!("creating {}", kept.display()))?;
    for entry in entries {
        let entry = entry?;
        // with its mode: it is nobody else's to read
        fs::copy(entry.path(), kept.join(entry.file_name()))?;
    }
    Ok(())
}

/// Prints the table and where the rest is.
pub fn print(report: &Report, out: &Path) -> Result<()> {
    let coloured =
        std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let width = std::io::stdout().is_terminal().then(terminal_width).flatten();
    print!("{}", report.to_table(TableStyle { width, colour: coloured }));
    println!("report: {}", out.join("index.html").display());
    Ok(())
}

fn terminal_width() -> Option<u16> {
    rustix::termios::tcgetwinsize(std::io::stdout())
        .ok()
        .map(|size| size.ws_col)
        .filter(|columns| *columns > 0)
}
