//! All scenarios of a run, and the choice among them.

use std::collections::BTreeMap;

use conformance_report::model::Profile;
use sha2::{Digest, Sha256};

use crate::{
    diagnostic::Diagnostic,
    rows::{Feature, ROWS, Row},
    scenario::{Origin, Scenario, lift::lift, raw::Node},
    words::{did_you_mean, nearest},
};

/// Scenarios by id, all sound.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    scenarios: Vec<Scenario>,
    hash: String,
}

/// Which scenarios are wanted: those that match every part that is not empty.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Selection {
    /// Ids or names.
    pub scenarios: Vec<String>,
    /// Names of profiles; a scenario of one of them matches.
    pub profiles: Vec<String>,
    /// Names of features; a scenario that needs one of them matches.
    pub features: Vec<String>,
}

/// What is wrong with a selection.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SelectError {
    /// Something that is not there.
    #[error("unknown {what} `{name}`{}", did_you_mean(.nearest.as_deref()))]
    Unknown {
        /// What it would be: scenario, profile or feature.
        what: &'static str,
        /// What was written.
        name: String,
        /// What may have been meant.
        nearest: Option<String>,
    },
    /// Everything is known, but nothing matches.
    #[error("no scenario matches the selection")]
    Nothing,
}

impl Catalogue {
    /// Reads files, given as path (relative to the scenarios folder) and text. Everything that is wrong with any of
    /// them is told, sorted by place.
    pub fn parse(
        files: impl IntoIterator<Item = (String, String)>,
        origin: Origin,
    ) -> Result<Self, Vec<Diagnostic>> {
        let files: BTreeMap<String, String> = files.into_iter().collect();
        let mut hash = Sha256::new();
        let mut scenarios = Vec::new();
        let mut diagnostics = Vec::new();
        for (path, text) in &files {
            // lengths keep two different lists of files from having one hash
            for part in [path, text] {
                hash.update((part.len() as u64).to_be_bytes());
                hash.update(part);
            }
            match lift(path, text, origin) {
                Ok(scenario) => scenarios.push(scenario),
                Err(found) => diagnostics.extend(found),
            }
        }
        let mut catalogue = Self { scenarios, hash: hex(&hash.finalize()) };
        diagnostics.extend(catalogue.sort());
        diagnostics.sort();
        if diagnostics.is_empty() { Ok(catalogue) } else { Err(diagnostics) }
    }

    /// Every row and the scenarios with a step that is marked with it, in the order of the rows.
    #[must_use]
    pub fn coverage(&self) -> Vec<(&'static Row, Vec<&Scenario>)> {
        let has = |scenario: &&Scenario, row: &Row| {
            scenario.outline.iter().flat_map(|step| &step.rows).any(|of_step| of_step.id == row.id)
        };
        ROWS.iter()
            .map(|row| (row, self.scenarios.iter().filter(|scenario| has(scenario, row)).collect()))
            .collect()
    }

    /// Joins the suite's scenarios and a user's own. The hash stays that of `self`.
    pub fn with(mut self, other: Self) -> Result<Self, Vec<Diagnostic>> {
        self.scenarios.extend(other.scenarios);
        let diagnostics = self.sort();
        if diagnostics.is_empty() { Ok(self) } else { Err(diagnostics) }
    }

    /// Sorts by id and finds ids and names that are there twice.
    fn sort(&mut self) -> Vec<Diagnostic> {
        self.scenarios.sort_by(|a, b| (&a.id, &a.file).cmp(&(&b.id, &b.file)));
        let mut diagnostics = Vec::new();
        let mut ids: BTreeMap<&str, &Scenario> = BTreeMap::new();
        let mut names: BTreeMap<&str, &Scenario> = BTreeMap::new();
        for scenario in &self.scenarios {
            if let Some(other) = ids.insert(&scenario.id, scenario) {
                diagnostics.push(twice(scenario, &["spec", "id"], "id", &scenario.id, other));
            }
            if let Some(other) = names.insert(&scenario.name, scenario) {
                diagnostics.push(twice(scenario, &["metadata", "name"], "name", &scenario.name, other));
            }
        }
        diagnostics
    }

    /// All scenarios, by id.
    #[must_use]
    pub fn scenarios(&self) -> &[Scenario] {
        &self.scenarios
    }

    /// The scenario of that id or name.
    #[must_use]
    pub fn get(&self, id_or_name: &str) -> Option<&Scenario> {
        self.scenarios.iter().find(|scenario| scenario.id == id_or_name || scenario.name == id_or_name)
    }

    /// SHA-256 over paths and texts of the files, in hex.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The scenarios that match, by id; an empty selection matches all.
    pub fn select(&self, selection: &Selection) -> Result<Vec<&Scenario>, SelectError> {
        let profiles: Vec<Profile> = words("profile", &selection.profiles)?;
        let features: Vec<Feature> = words("feature", &selection.features)?;
        for name in &selection.scenarios {
            if self.get(name).is_none() {
                let known = self.scenarios.iter().flat_map(|scenario| [&*scenario.name, &*scenario.id]);
                let nearest = nearest(name, known).map(str::to_owned);
                return Err(SelectError::Unknown { what: "scenario", name: name.clone(), nearest });
            }
        }
        let named = |scenario: &Scenario| {
            selection.scenarios.iter().any(|name| *name == scenario.id || *name == scenario.name)
        };
        let chosen: Vec<&Scenario> = self
            .scenarios
            .iter()
            .filter(|scenario| selection.scenarios.is_empty() || named(scenario))
            .filter(|scenario| {
                profiles.is_empty() || scenario.profiles.iter().any(|profile| profiles.contains(profile))
            })
            .filter(|scenario| {
                features.is_empty() || scenario.features.iter().any(|feature| features.contains(feature))
            })
            .collect();
        if chosen.is_empty() { Err(SelectError::Nothing) } else { Ok(chosen) }
    }
}

/// Reads words of an enum, with the nearest right word for a wrong one.
fn words<T: serde::de::DeserializeOwned>(
    what: &'static str,
    names: &[String],
) -> Result<Vec<T>, SelectError> {
    names
        .iter()
        .map(|name| {
            T::deserialize(serde::de::value::StrDeserializer::<WordError>::new(name)).map_err(
                |WordError(known)| SelectError::Unknown {
                    what,
                    name: name.clone(),
                    nearest: nearest(name, known.iter().copied()).map(str::to_owned),
                },
            )
        })
        .collect()
}

/// The words that there are.
#[derive(Debug)]
struct WordError(&'static [&'static str]);

impl std::fmt::Display for WordError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("unknown word")
    }
}

impl std::error::Error for WordError {}

impl serde::de::Error for WordError {
    fn custom<T: std::fmt::Display>(_: T) -> Self {
        Self(&[])
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self(expected)
    }
}

fn twice(scenario: &Scenario, path: &[&str; 2], what: &str, value: &str, other: &Scenario) -> Diagnostic {
    let at = Node::parse(&scenario.file, &scenario.text)
        .ok()
        .and_then(|root| root.get(path[0])?.get(path[1]).map(|node| node.at))
        .unwrap_or_default();
    let message = format!("the {what} `{value}` is that of {} too", other.file);
    Diagnostic::new(&scenario.file, &scenario.text, at, message)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // writing to a String can't fail
        let _ = write!(text, "{byte:02x}");
        text
    })
}
