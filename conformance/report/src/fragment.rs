//! One file a scenario, written by the process that ran it.
//!
//! A killed run loses only what had not ended: each file appears whole, by a rename, or not at all.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::ReportError;
use crate::model::{Incident, IncidentKind, ScenarioResult};

/// What one process found out about one scenario.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fragment {
    /// Id of the run that it belongs to.
    pub run_id: String,
    /// The results: one, or one a case.
    pub results: Vec<ScenarioResult>,
}

/// What a folder of fragments held.
#[derive(Debug, Default)]
pub struct Collected {
    /// The fragments, by file name.
    pub fragments: Vec<Fragment>,
    /// Files that could not be read as one. They belong into [`crate::merge::Header::incidents`].
    pub damaged: Vec<Incident>,
}

impl Fragment {
    /// Writes the fragment as `<scenario id>.json` into a folder that exists. A file of the same name is replaced.
    pub fn write(&self, folder: &Path, scenario: &str) -> Result<(), ReportError> {
        write_atomically(&folder.join(file_name(scenario)), &(serde_json::to_string_pretty(self)? + "\n"))
    }

    /// Reads all fragments in a folder. One that cannot be understood is an incident, not an end of it all.
    pub fn collect(folder: &Path) -> Result<Collected, ReportError> {
        let failed = |action, path: &Path| {
            let path = path.to_owned();
            move |source| ReportError::Io { action, path, source }
        };
        let mut files = Vec::new();
        for entry in fs::read_dir(folder).map_err(failed("read", folder))? {
            let path = entry.map_err(failed("read", folder))?.path();
            let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
            if !hidden && path.extension().is_some_and(|extension| extension == "json") {
                files.push(path);
            }
        }
        files.sort();
        let mut collected = Collected::default();
        for path in files {
            let text = fs::read(&path).map_err(failed("read", &path))?;
            match serde_json::from_slice(&text) {
                Ok(fragment) => collected.fragments.push(fragment),
                Err(error) => collected.damaged.push(Incident {
                    kind: IncidentKind::DamagedEntry,
                    message: format!(
                        "entry {} cannot be read: {error}",
                        path.file_name().unwrap_or_default().to_string_lossy()
                    ),
                }),
            }
        }
        Ok(collected)
    }
}

/// Writes a whole file or nothing: readers never see a half, whatever kills the writer.
pub fn write_atomically(path: &Path, text: &str) -> Result<(), ReportError> {
    let failed = |source| ReportError::Io { action: "write", path: path.to_owned(), source };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Hidden, and of this process alone, so that neither readers nor other writers meet it.
    let part: PathBuf = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = fs::File::create(&part).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&part, path)
    });
    written.map_err(|error| {
        // Whatever is wrong with the folder has already been said.
        let _ = fs::remove_file(&part);
        failed(error)
    })
}

/// A file name for any id: other characters than those of the catalogue's ids are written as `%` and their code.
fn file_name(scenario: &str) -> String {
    let encode = |byte: u8| match byte {
        b'-' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => char::from(byte).to_string(),
        _ => format!("%{byte:02x}"),
    };
    scenario.bytes().map(encode).collect::<String>() + ".json"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Outcome;
    use crate::samples::scenario;

    fn fragment(id: &str, outcome: Outcome) -> Fragment {
        Fragment { run_id: "r7k2".into(), results: vec![scenario(id, outcome)] }
    }

    #[test]
    fn what_is_written_is_collected_by_name_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (fragment("CB-ACT-001", Outcome::Passed), fragment("my/../own", Outcome::Unknown));
        two.write(folder.path(), "my/../own").unwrap();
        fragment("CB-ACT-001", Outcome::NotRun).write(folder.path(), "CB-ACT-001").unwrap();
        one.write(folder.path(), "CB-ACT-001").unwrap();
        fs::write(folder.path().join(".CB-ACT-002.json.99"), "{").unwrap();
        fs::write(folder.path().join("notes.txt"), "").unwrap();
        let collected = Fragment::collect(folder.path()).unwrap();
        assert_eq!(collected.fragments, [one, two]);
        assert!(collected.damaged.is_empty());
        let mut names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|f| f.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, [".CB-ACT-002.json.99", "CB-ACT-001.json", "my%2f%2e%2e%2fown.json", "notes.txt"]);
    }

    #[test]
    fn a_damaged_file_is_an_incident_and_the_rest_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        fragment("CB-ACT-001", Outcome::Passed).write(folder.path(), "CB-ACT-001").unwrap();
        fs::write(folder.path().join("CB-ACT-002.json"), "{\"runId\": \"r7k2\", \"result\": []}").unwrap();
        let collected = Fragment::collect(folder.path()).unwrap();
        assert_eq!(collected.fragments.len(), 1);
        assert_eq!(
            collected.damaged[0].message,
            "entry CB-ACT-002.json cannot be read: unknown field `result`, expected `runId` or `results` \
             at line 1 column 26"
        );
    }

    #[test]
    fn a_folder_that_is_missing_is_an_error_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let error = fragment("CB-ACT-001", Outcome::Passed).write(&missing, "CB-ACT-001").unwrap_err();
        assert!(matches!(error, ReportError::Io { action: "write", .. }));
        assert!(matches!(Fragment::collect(&missing).unwrap_err(), ReportError::Io { action: "read", .. }));
    }

    #[test]
    fn a_write_that_fails_leaves_no_half_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("CB-ACT-001.json")).unwrap();
        fragment("CB-ACT-001", Outcome::Passed).write(folder.path(), "CB-ACT-001").unwrap_err();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
