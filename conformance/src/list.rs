//! `bufconf list`, `lint` and `schema`: what works without a cluster.

use std::path::PathBuf;

use anyhow::anyhow;
use comfy_table::{Table, presets};
use conformance_engine::{
    applicability::Applicability,
    catalogue::{Catalogue, Selection},
    scenario::Scenario,
    waits::ClusterKind,
};
use serde_json::json;

use crate::{
    catalogue,
    cli::{ListArgs, ListFormat, SchemaKind},
    failure::Failure,
    run::{selection_failure, today},
    subject::Subject,
};

/// Lists scenarios and whether they apply to an implementation.
pub fn list(args: &ListArgs) -> Result<(), Failure> {
    let catalogue = catalogue::load(args.scenarios_dir.as_deref())?;
    if args.coverage {
        return coverage(&catalogue, args.format);
    }
    let subject = Subject::load(&args.implementation, Some(&catalogue))?;
    let selection = Selection { scenarios: args.scenarios.clone(), ..Selection::default() };
    let selected = catalogue.select(&selection).map_err(selection_failure)?;
    let rows = selected.iter().map(|scenario| (*scenario, applies(scenario, &subject)));
    match args.format {
        ListFormat::Table => {
            let mut table = Table::new();
            table.load_style(presets::NOTHING);
            table.set_header(["ID", "NAME", "LEVEL", "ISOLATION", "CASES", "APPLIES", "TITLE"]);
            for (scenario, applies) in rows {
                table.add_row([
                    scenario.id.clone(),
                    scenario.name.clone(),
                    word(&scenario.level)?,
                    format!("{:?}", scenario.needs.isolation).to_lowercase(),
                    scenario.cases.len().max(1).to_string(),
                    applies,
                    scenario.title.clone(),
                ]);
            }
            println!("{table}");
        }
        ListFormat::Json => {
            let list: Vec<_> = rows
                .map(|(scenario, applies)| {
                    json!({
                        "id": scenario.id, "name": scenario.name, "title": scenario.title,
                        "level": scenario.level, "profiles": scenario.profiles, "file": scenario.file,
                        "cases": scenario.cases.iter().map(|case| &case.name).collect::<Vec<_>>(),
                        "applies": applies,
                    })
                })
                .collect();
            print!("{}", pretty(&list)?);
        }
    }
    Ok(())
}

/// Lists the rows and the scenarios that judge them.
fn coverage(catalogue: &Catalogue, format: ListFormat) -> Result<(), Failure> {
    let rows = catalogue.coverage().into_iter().map(|(row, scenarios)| {
        let classes: Vec<_> = row.classes.iter().map(ToString::to_string).collect();
        let names: Vec<_> = scenarios.iter().map(|scenario| scenario.name.clone()).collect();
        (row, classes, names)
    });
    match format {
        ListFormat::Table => {
            let mut table = Table::new();
            table.load_style(presets::NOTHING);
            table.set_header(["ROW", "JUDGES", "SCENARIOS", "WHAT IT SAYS"]);
            for (row, classes, names) in rows {
                let names = if names.is_empty() { "none".to_owned() } else { names.join(" ") };
                table.add_row([row.id.to_owned(), classes.join(", "), names, row.title.to_owned()]);
            }
            println!("{table}");
        }
        ListFormat::Json => {
            let list: Vec<_> = rows
                .map(|(row, classes, names)| {
                    json!({"row": row.id, "title": row.title, "judges": classes, "scenarios": names})
                })
                .collect();
            print!("{}", pretty(&list)?);
        }
    }
    Ok(())
}

fn applies(scenario: &Scenario, subject: &Subject) -> String {
    match scenario.applicability(&subject.implementation, ClusterKind::Embedded, today()) {
        Applicability::Run => "yes".to_owned(),
        Applicability::NotApplicable(why) => format!("no: {why}"),
        Applicability::CouldNotRun(why) => format!("could not run: {why}"),
        Applicability::Exempted(why) => format!("exempted: {why}"),
    }
}

/// How files write a value.
fn word(value: &impl serde::Serialize) -> Result<String, Failure> {
    match serde_json::to_value(value).map_err(Failure::environment)? {
        serde_json::Value::String(word) => Ok(word),
        other => Err(Failure::environment(anyhow!("{other} is not a word"))),
    }
}

fn pretty(value: &impl serde::Serialize) -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(value).map_err(Failure::environment)? + "\n")
}

/// Checks scenario files.
pub fn lint(paths: &[PathBuf]) -> Result<(), Failure> {
    let count = catalogue::lint(paths)?;
    if count == 0 {
        return Err(Failure::nothing("there is no scenario in these places"));
    }
    println!("{count} scenarios, no findings");
    Ok(())
}

/// Prints a JSON Schema.
pub fn schema(kind: SchemaKind) -> Result<(), Failure> {
    let text = match kind {
        SchemaKind::Scenario => pretty(&conformance_engine::schema::scenario())?,
        SchemaKind::Implementation => pretty(&conformance_engine::schema::implementation())?,
        SchemaKind::Report => conformance_report::schema_json().map_err(Failure::environment)?,
    };
    print!("{text}");
    Ok(())
}
