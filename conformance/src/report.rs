//! `bufconf report …`: what can be done with reports that are there.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use conformance_report::{Comparison, merge, model::Report};

use crate::{cli::ReportCommand, failure::Failure, output};

/// Does it; returns the exit code.
pub fn execute(command: ReportCommand) -> Result<u8, Failure> {
    match command {
        ReportCommand::Render { report, out } => {
            let report = read(&report)?;
            write(&report, &out)?;
            Ok(0)
        }
        ReportCommand::Validate { reports } => {
            read_all(&reports)?;
            println!("{} of the published format", counted(reports.len()));
            Ok(0)
        }
        ReportCommand::Verify { reports } => {
            for (path, report) in reports.iter().zip(read_all(&reports)?) {
                report.verify().with_context(|| path.display().to_string()).map_err(Failure::report)?;
            }
            println!("{} that agree with their entries", counted(reports.len()));
            Ok(0)
        }
        ReportCommand::Merge { reports, out } => {
            let parts = read_all(&reports)?;
            for (path, part) in reports.iter().zip(&parts) {
                part.verify().with_context(|| path.display().to_string()).map_err(Failure::report)?;
            }
            let whole = merge::join(parts).map_err(Failure::report)?;
            write(&whole, &out)?;
            Ok(whole.exit_code)
        }
        ReportCommand::Diff { reports } => {
            let reports = read_all(&reports)?;
            let comparison = Comparison::of(&reports);
            if comparison.is_empty() {
                println!("no difference, and no violation");
                return Ok(0);
            }
            print!("{}", comparison.to_markdown());
            Ok(1)
        }
    }
}

fn counted(count: usize) -> String {
    if count == 1 { "1 report".to_owned() } else { format!("{count} reports") }
}

fn read_all(paths: &[PathBuf]) -> Result<Vec<Report>, Failure> {
    paths.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> Result<Report, Failure> {
    let naming = || path.display().to_string();
    let text = fs::read_to_string(path).with_context(naming).map_err(Failure::usage)?;
    Report::from_json(&text).with_context(naming).map_err(Failure::report)
}

fn write(report: &Report, out: &Path) -> Result<(), Failure> {
    output::write(report, out).map_err(Failure::usage)?;
    output::print(report, out).map_err(Failure::environment)
}
