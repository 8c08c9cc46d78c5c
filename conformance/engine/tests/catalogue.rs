//! The committed scenarios are sound, those in `broken/` are refused with the committed message.

use std::{
    fs,
    path::{Path, PathBuf},
};

use conformance_engine::{catalogue::Catalogue, scenario::Origin};

fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

fn files(below: &Path) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut folders = vec![below.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "yaml") {
                let name = path.strip_prefix(scenarios()).unwrap().to_str().unwrap().to_owned();
                files.push((name, fs::read_to_string(path).unwrap()));
            }
        }
    }
    files
}

#[test]
fn the_committed_scenarios_are_sound() {
    let all = files(&scenarios()).into_iter().filter(|(path, _)| !path.starts_with("broken/"));
    match Catalogue::parse(all, Origin::Catalogue) {
        Ok(catalogue) => assert!(catalogue.scenarios().len() >= 8),
        Err(diagnostics) => {
            let text: Vec<_> = diagnostics.iter().map(ToString::to_string).collect();
            panic!("{}", text.join("\n\n"));
        }
    }
}
