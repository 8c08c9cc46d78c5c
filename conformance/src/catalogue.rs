//! The scenarios that are built in, and users' own.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};
use conformance_engine::{catalogue::Catalogue, diagnostic::Diagnostic, scenario::Origin};
use include_dir::{Dir, include_dir};

use crate::failure::Failure;

static BUILT_IN: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../scenarios");

/// Folders of the catalogue that hold scenarios.
const FOLDERS: [&str; 7] = ["active", "api", "lifecycle", "quota", "regressions", "resolve", "retain"];

/// The built-in scenarios and, if a folder is given, the user's own.
pub fn load(own: Option<&Path>) -> Result<Catalogue, Failure> {
    let built_in = FOLDERS
        .into_iter()
        .filter_map(|folder| BUILT_IN.get_dir(folder))
        .flat_map(Dir::files)
        .filter(|file| is_yaml(file.path()))
        .filter_map(|file| Some((file.path().display().to_string(), file.contents_utf8()?.to_owned())));
    let built_in = parse(built_in, Origin::Catalogue)?;
    match own {
        None => Ok(built_in),
        Some(folder) => {
            let own = parse(read(&[folder.to_owned()])?, Origin::User)?;
            built_in.with(own).map_err(|diagnostics| Failure::usage(listed(&diagnostics)))
        }
    }
}

/// The scenarios of a source folder, for tests: read from disk, so that a new file needs no new build.
pub fn load_folder(root: &Path) -> Result<Catalogue, Failure> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        let path = root.join(folder);
        if path.is_dir() {
            for (path, text) in read(&[path])? {
                let name = Path::new(&path).strip_prefix(root).map_err(Failure::usage)?;
                files.push((name.display().to_string(), text));
            }
        }
    }
    parse(files, Origin::Catalogue)
}

/// Checks files and folders; returns how many scenarios they hold.
pub fn lint(paths: &[PathBuf]) -> Result<usize, Failure> {
    Ok(parse(read(paths)?, Origin::User)?.scenarios().len())
}

fn parse(files: impl IntoIterator<Item = (String, String)>, origin: Origin) -> Result<Catalogue, Failure> {
    Catalogue::parse(files, origin).map_err(|diagnostics| Failure::usage(listed(&diagnostics)))
}

/// The YAML files among the paths and in the folders among them, sorted.
fn read(paths: &[PathBuf]) -> Result<Vec<(String, String)>, Failure> {
    let mut files = Vec::new();
    let mut todo = paths.to_vec();
    while let Some(path) = todo.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path)
                .with_context(|| format!("reading {}", path.display()))
                .map_err(Failure::usage)?;
            for entry in entries {
                let entry = entry.map_err(Failure::usage)?.path();
                if entry.is_dir() || is_yaml(&entry) {
                    todo.push(entry);
                }
            }
        } else {
            let text = fs::read_to_string(&path)
                .with_context(|| format!("reading {}", path.display()))
                .map_err(Failure::usage)?;
            files.push((path.display().to_string(), text));
        }
    }
    files.sort();
    Ok(files)
}

fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// Diagnostics as one error.
#[must_use]
pub fn listed(diagnostics: &[Diagnostic]) -> anyhow::Error {
    let lines: Vec<String> = diagnostics.iter().map(ToString::to_string).collect();
    anyhow!("{}", lines.join("\n"))
}
