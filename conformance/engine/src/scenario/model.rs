//! What a scenario is, once it has been read and checked.

use std::collections::{BTreeMap, BTreeSet};

use conformance_report::model::{Level, Profile, Source};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    diagnostic::Diagnostic,
    implementation::{Dialect, Hook},
    rows::{Feature, Row},
    scenario::{
        de,
        raw::Node,
        step::Step,
        usage::Usage,
        vars::{NODE_OF, Vars, replace},
    },
};

/// Whose scenario it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Origin {
    /// The suite's: part of the verdict.
    Catalogue,
    /// A user's own: reported apart, never part of the verdict.
    User,
    /// Either, for a check alone: its id says whose it would be.
    Any,
}

/// A scenario that was read, lifted and found sound.
///
/// The steps are kept with their variables; [`Scenario::bind`] gives them with values. Everything that can be
/// known without a cluster was checked when the file was read, each case with sample values.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Stable id, such as `CB-ACT-001`.
    pub id: String,
    /// Name, which is the file's stem.
    pub name: String,
    /// Path as given to the catalogue, relative to the scenarios folder.
    pub file: String,
    /// Whose it is.
    pub origin: Origin,
    /// One line.
    pub title: String,
    /// More lines, for `explain`.
    pub description: Option<String>,
    /// How binding it is.
    pub level: Level,
    /// Profiles that it counts for.
    pub profiles: Vec<Profile>,
    /// Optional features that it needs.
    pub features: Vec<Feature>,
    /// Where the requirement is written down; at least one.
    pub sources: Vec<Source>,
    /// What it demands of plane and pool.
    pub needs: Needs,
    /// The table; empty where the scenario is a single run.
    pub cases: Vec<Case>,
    /// The steps as they stand in the file, in order: what can be said of them before they are bound.
    pub outline: Vec<StepOutline>,
    pub(crate) text: String,
    pub(super) steps: Vec<Node>,
}

/// A step before its variables have values.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StepOutline {
    /// The verb.
    pub verb: &'static str,
    /// Verb and object, one line, with the variables as written.
    pub title: String,
    /// Line in the file, from 1.
    pub line: usize,
    /// The dialect that it belongs to.
    pub dialect: Option<Dialect>,
    /// The feature that it belongs to.
    pub feature: Option<Feature>,
    /// Rows that it is marked with; more than one only where the row is a variable of the case.
    pub rows: Vec<&'static Row>,
}

/// What a scenario demands.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Needs {
    /// What may happen on the plane meanwhile.
    pub isolation: Isolation,
    /// Most nodes that exist at once; 0 where only statuses are looked at.
    pub nodes: u32,
    /// Whether a pool is acquired before step 1; by default exactly where nodes are needed.
    pub pool: Option<PoolNeed>,
    /// A demand on the size of the pool's nodes.
    pub shape: ShapeNeed,
    /// Each node must have a host name of its own.
    pub unique_hostnames: bool,
    /// The pool must take resource limits.
    pub limits_settable: bool,
    /// Settings that the subject is started with; only with a plane of its own.
    pub settings: Settings,
    /// Hooks that the implementation must declare.
    pub hooks: Vec<Hook>,
}

impl Needs {
    /// Whether a pool is acquired before step 1.
    #[must_use]
    pub fn wants_pool(&self) -> bool {
        self.pool.map_or(self.nodes > 0, |pool| pool == PoolNeed::Create)
    }
}

/// What may happen on the plane while a scenario runs.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, JsonSchema, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// Other scenarios run side by side.
    #[default]
    Shared,
    /// Nothing else changes on the plane.
    Quiet,
    /// A plane, cloud and subject of its own.
    Own,
}

/// Whether a pool is acquired.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum PoolNeed {
    /// One is acquired before step 1 and its name is `${pool}`.
    Create,
    /// None; the scenario makes do with what is there or brings its own.
    None,
}

/// A demand on the size of the pool's nodes.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum ShapeNeed {
    /// None.
    #[default]
    Any,
    /// Nodes so large that `${chunk.one_per_node}` fits exactly once on each.
    OneChunkPerNode,
}

/// Settings that a subject is started with. Absent = as the implementation likes it.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// The feature gate or flag that enables buffers: `on` or `off`.
    pub gate: Option<bool>,
}

/// One row of a scenario's table, one result.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
pub struct Case {
    /// Name, unique in the table; also `${case.name}`.
    pub name: String,
    /// The other cells, each `${case.KEY}`.
    #[serde(flatten)]
    pub values: BTreeMap<String, Value>,
}

impl Scenario {
    /// Names of the variables that the steps use.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &str> {
        Usage::of(&self.steps).into_names()
    }

    /// The steps with every variable replaced, in order; `${node.POD}` stands for itself, [`Scenario::locate`] replaces it.
    ///
    /// Fails where a variable has no value, or one that the step can't have; the place in the file is told.
    pub fn bind(&self, vars: &Vars) -> Result<Vec<Step>, Diagnostic> {
        let vars = vars.clone().with_own_names(self.variables().filter(|name| name.starts_with(NODE_OF)));
        self.steps.iter().map(|step| self.bind_one(step, &vars)).collect()
    }

    /// The pods whose nodes a step names by `${node.POD}`; `index` counts from 0.
    pub(crate) fn located_pods(&self, index: usize) -> BTreeSet<&str> {
        let step = self.steps.get(index).map_or(&[][..], std::slice::from_ref);
        Usage::of(step).into_names().filter_map(|name| name.strip_prefix(NODE_OF)).collect()
    }

    /// One step with every variable replaced, also the names of the nodes of pods.
    pub(crate) fn locate(
        &self,
        index: usize,
        vars: &Vars,
        nodes: BTreeMap<&str, String>,
    ) -> Result<Option<Step>, Diagnostic> {
        let vars = nodes.into_iter().fold(vars.clone(), |vars, (pod, node)| vars.with_node_of(pod, node));
        self.steps.get(index).map(|step| self.bind_one(step, &vars)).transpose()
    }

    fn bind_one(&self, step: &Node, vars: &Vars) -> Result<Step, Diagnostic> {
        bind_step(step, vars).map_err(|fault| {
            Diagnostic::new(&self.file, &self.text, fault.at.unwrap_or(step.at), fault.message)
        })
    }
}

/// One step with its variables replaced.
pub(super) fn bind_step(step: &Node, vars: &Vars) -> Result<Step, de::Fault> {
    let bound = replace(step, vars).map_err(|(at, error)| de::Fault::new(at, error.to_string()))?;
    let bound = bound.ok_or_else(|| de::Fault::new(step.at, "a step can't be a variable"))?;
    de::read(&bound)
}
