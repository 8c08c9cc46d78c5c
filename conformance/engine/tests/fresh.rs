//! What is generated from the code is as committed. `BUFCONF_GENERATE=1` writes it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::{fs, path::Path};

use conformance_engine::schema;

const BEGIN: &str = "<!-- generated: begin -->\n";
const END: &str = "<!-- generated: end -->";

fn check(path: &str, content: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(path);
    if std::env::var_os("BUFCONF_GENERATE").is_some() {
        fs::write(&path, content).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == content, "{} is stale: run `make generate`", path.display());
}

#[test]
fn schemas_are_fresh() {
    for (name, schema) in [("scenario", schema::scenario()), ("implementation", schema::implementation())] {
        check(
            &format!("schema/{name}.json"),
            &format!("{}\n", serde_json::to_string_pretty(&schema).unwrap()),
        );
    }
}

#[test]
fn the_reference_in_the_readme_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/README.md");
    let readme = fs::read_to_string(path).unwrap();
    let (before, rest) = readme.split_once(BEGIN).expect("the mark where the reference begins");
    let (_, after) = rest.split_once(END).expect("the mark where the reference ends");
    check("README.md", &format!("{before}{BEGIN}{}{END}{after}", schema::reference()));
}
