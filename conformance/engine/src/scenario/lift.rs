//! From a file's text to a checked [`Scenario`], with everything that is wrong in one pass.

use std::collections::{BTreeMap, BTreeSet};

use conformance_report::model::{Level, Profile, Source};
use schemars::JsonSchema;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};

use crate::{
    diagnostic::{Diagnostic, Position},
    document::ApiVersion,
    rows::Feature,
    scenario::{
        de::{self, Fault},
        lint,
        model::{Case, Needs, Origin, Scenario, StepOutline, bind_step},
        raw::{Kind, Node},
        step::Step,
        usage::Usage,
        vars::{NODE_OF, Vars},
    },
};

/// A scenario as its file has it.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(title = "Scenario")]
pub(crate) struct Document {
    /// Version of the format.
    #[serde(rename = "apiVersion")]
    _api_version: ApiVersion,
    /// Kind.
    #[serde(rename = "kind")]
    _kind: ScenarioKind,
    /// Name.
    metadata: Metadata,
    /// Everything else.
    spec: Spec,
}

/// Kind of a scenario's file.
#[derive(Deserialize, JsonSchema)]
enum ScenarioKind {
    /// A scenario.
    Scenario,
}

/// Name of a scenario.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Metadata {
    /// The file's stem.
    #[schemars(regex(pattern = "^[a-z0-9]+(-[a-z0-9]+)*$"))]
    name: String,
}

/// Everything of a scenario but its name.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spec {
    /// Stable id, such as `CB-ACT-001`; never used again for something else.
    #[schemars(regex(pattern = "^[A-Z][A-Z0-9]*-[A-Z]{3}-[0-9]{3}$"))]
    id: String,
    /// One line.
    title: String,
    /// More lines, for `explain`.
    description: Option<String>,
    /// How binding it is.
    level: Level,
    /// Profiles that it counts for.
    profiles: Vec<Profile>,
    /// Optional features that it needs.
    #[serde(default)]
    features: Vec<Feature>,
    /// Where the requirement is written down.
    sources: Vec<Source>,
    /// What it demands of plane and pool.
    #[serde(default)]
    needs: Needs,
    /// A table: one result a row, each in a namespace of its own.
    #[serde(default, rename = "cases")]
    #[schemars(with = "Vec<Case>")]
    _cases: Option<IgnoredAny>,
    /// What is done and looked at, in order.
    #[serde(rename = "steps")]
    #[schemars(with = "Vec<Step>")]
    _steps: IgnoredAny,
}

/// A step that was bound with sample values, for the checks.
pub(super) struct Bound<'a> {
    /// The step as it stands in the file.
    pub node: &'a Node,
    /// The step of each case, or the only one.
    pub step: Step,
    /// The case, where there are cases.
    pub case: Option<&'a str>,
}

/// Reads one file.
pub(crate) fn lift(file: &str, text: &str, origin: Origin) -> Result<Scenario, Vec<Diagnostic>> {
    let root = Node::parse(file, text).map_err(|diagnostic| vec![diagnostic])?;
    let mut faults = Faults { file, text, found: BTreeSet::new() };
    let scenario = lift_tree(&root, &mut faults, origin);
    match scenario {
        Some(scenario) if faults.found.is_empty() => Ok(scenario),
        _ => Err(faults.found.into_iter().collect()),
    }
}

/// More faults of one file are not told: whoever has so many looks at the first ones.
const MAX_FAULTS: usize = 50;

/// Steps times cases: what a hostile file can make the checks do.
const MAX_RUNS: usize = 5_000;

/// The faults of one file. The same fault in several cases is told once.
pub(super) struct Faults<'a> {
    file: &'a str,
    text: &'a str,
    found: BTreeSet<Diagnostic>,
}

impl Faults<'_> {
    pub fn add(&mut self, at: Position, message: impl Into<String>) {
        if !self.is_full() {
            self.found.insert(Diagnostic::new(self.file, self.text, at, message));
        }
    }

    /// Whether no more is told.
    pub fn is_full(&self) -> bool {
        self.found.len() >= MAX_FAULTS
    }

    /// Where a piece of text stands that belongs to the value at `at`.
    pub fn locate(&self, at: Position, piece: &str) -> Position {
        let skip = at.line.saturating_sub(1);
        for (index, line) in self.text.lines().enumerate().skip(skip) {
            let from = if index == skip { at.column.saturating_sub(1) } else { 0 };
            let start = line.char_indices().nth(from).map_or(line.len(), |(byte, _)| byte);
            if let Some(found) = line[start..].find(piece) {
                return Position {
                    line: index + 1,
                    column: line[..start + found].chars().count() + 1,
                    width: piece.chars().count(),
                };
            }
        }
        at
    }
}

fn lift_tree(root: &Node, faults: &mut Faults<'_>, origin: Origin) -> Option<Scenario> {
    let document: Option<Document> = match de::read(root) {
        Ok(document) => Some(document),
        Err(Fault { at, message }) => {
            faults.add(at.unwrap_or(root.at), message);
            None
        }
    };
    let nothing = Node { kind: Kind::Null, at: root.at };
    let spec = root.get("spec").unwrap_or(&nothing);
    let cases = lift_cases(spec.get("cases"), faults);
    let steps = lift_steps(spec.get("steps"), faults);
    if steps.len() * cases.len().max(1) > MAX_RUNS {
        let message = format!(
            "{} steps in {} cases are more than the {MAX_RUNS} that are read",
            steps.len(),
            cases.len()
        );
        faults.add(spec.key_at("steps"), message);
        return None;
    }

    let needs = document.as_ref().map(|document| document.spec.needs.clone());
    let usage = Usage::of(&steps);
    let id = document.as_ref().map_or("", |document| &document.spec.id);
    // with an unreadable head nothing is said about the pool
    let sample = sample(id, needs.as_ref().is_none_or(Needs::wants_pool), &usage);
    let broken = usage.check(&sample, needs.as_ref(), &cases, faults);
    let bound = bind(&steps, &broken, &sample, &cases, faults);

    let Document { metadata, spec: head, .. } = document?;
    let scenario = Scenario {
        id: head.id,
        name: metadata.name,
        file: faults.file.to_owned(),
        origin,
        title: head.title,
        description: head.description,
        level: head.level,
        profiles: head.profiles,
        features: head.features,
        sources: head.sources,
        needs: head.needs,
        outline: outline(&bound),
        cases: cases.iter().map(|(_, case)| case.clone()).collect(),
        text: faults.text.to_owned(),
        steps: steps.clone(),
    };
    lint::check(&scenario, root, &bound, faults);
    Some(scenario)
}

fn lift_cases<'a>(node: Option<&'a Node>, faults: &mut Faults<'_>) -> Vec<(&'a Node, Case)> {
    let Some(node) = node else { return Vec::new() };
    let mut cases: Vec<(&Node, Case)> = Vec::new();
    if node.items().is_empty() {
        faults.add(node.at, "`cases` is a list of maps, one for each result");
    }
    for item in node.items() {
        match de::read::<Case>(item) {
            Ok(case) => {
                if cases.iter().any(|(_, other)| other.name == case.name) {
                    faults.add(item.key_at("name"), format!("there is another case `{}`", case.name));
                }
                if case.name.is_empty() || !case.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
                    faults.add(item.key_at("name"), "the name of a case has letters, digits and `-` only");
                }
                cases.push((item, case));
            }
            Err(Fault { at, message }) => faults.add(at.unwrap_or(item.at), message),
        }
    }
    cases
}

fn lift_steps(node: Option<&Node>, faults: &mut Faults<'_>) -> Vec<Node> {
    let Some(node) = node else { return Vec::new() };
    if node.items().is_empty() {
        faults.add(node.at, "`steps` is a list of steps, at least one");
    }
    node.items().to_vec()
}

/// Sample values: what is known only with a cluster stands for itself, so that messages show it as written.
fn sample(id: &str, pool: bool, usage: &Usage<'_>) -> Vars {
    let mut values: BTreeMap<String, Value> = ["run", "namespace"]
        .into_iter()
        .map(|name| (name.to_owned(), format!("${{{name}}}").into()))
        .collect();
    values.insert("scenario".to_owned(), id.to_lowercase().into());
    if pool {
        values.insert("pool".to_owned(), "${pool}".into());
        for chunk in crate::implementation::chunk_names() {
            values.insert(format!("chunk.{chunk}"), json!({"cpu": "1", "memory": "1Gi"}));
        }
    }
    // an implementation may declare any, and a pod of any name may come; what is lacking is known when it is needed
    let later = usage.names().filter(|name| name.starts_with("implementation.") || name.starts_with(NODE_OF));
    Vars::of(values).with_own_names(later)
}

fn bind<'a>(
    steps: &'a [Node],
    broken: &BTreeSet<usize>,
    sample: &Vars,
    cases: &'a [(&Node, Case)],
    faults: &mut Faults<'_>,
) -> Vec<Vec<Bound<'a>>> {
    let vars: Vec<(Option<&str>, Vars)> = match cases {
        [] => vec![(None, sample.clone())],
        cases => {
            cases.iter().map(|(_, case)| (Some(case.name.as_str()), sample.clone().with_case(case))).collect()
        }
    };
    let mut bound = Vec::with_capacity(steps.len());
    for (index, node) in steps.iter().enumerate() {
        if broken.contains(&index) {
            continue;
        }
        let mut of_step = Vec::with_capacity(vars.len());
        for (case, vars) in &vars {
            match bind_step(node, vars) {
                Ok(step) => of_step.push(Bound { node, step, case: *case }),
                Err(Fault { at, message }) => faults.add(at.unwrap_or(node.at), message),
            }
        }
        if !of_step.is_empty() {
            bound.push(of_step);
        }
    }
    bound
}

fn outline(bound: &[Vec<Bound<'_>>]) -> Vec<StepOutline> {
    bound
        .iter()
        .filter_map(|of_step| of_step.first().map(|first| (first, of_step)))
        .map(|(first, of_step)| {
            let mut rows = Vec::new();
            for row in of_step.iter().filter_map(|bound| bound.step.judge().req) {
                if !rows.contains(&row.0) {
                    rows.push(row.0);
                }
            }
            let keys = first.step.judge();
            StepOutline {
                verb: first.step.verb(),
                title: first.step.title(),
                line: first.node.at.line,
                dialect: keys.dialect,
                feature: keys.feature,
                rows,
            }
        })
        .collect()
}
