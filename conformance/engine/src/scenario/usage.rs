//! Which variables a scenario uses, and whether they can have values.

use std::collections::BTreeSet;

use crate::{
    diagnostic::Position,
    scenario::{
        lift::Faults,
        model::{Case, Needs},
        raw::{Kind, Node},
        vars::{Part, SubstituteError, Vars, parse},
    },
    words::{did_you_mean, nearest},
};

/// One use of a variable.
struct Use<'a> {
    step: usize,
    name: &'a str,
    optional: bool,
    at: Position,
}

/// All uses of variables in the steps, and what only looks like one.
#[derive(Default)]
pub(super) struct Usage<'a> {
    uses: Vec<Use<'a>>,
    malformed: Vec<(usize, Position, SubstituteError)>,
}

impl<'a> Usage<'a> {
    /// Finds them.
    pub fn of(steps: &'a [Node]) -> Self {
        let mut usage = Self::default();
        for (step, node) in steps.iter().enumerate() {
            usage.collect(step, node);
        }
        usage
    }

    fn collect(&mut self, step: usize, node: &'a Node) {
        match &node.kind {
            Kind::Text(text) => match parse(text) {
                Ok(parts) => {
                    let whole = parts.len() == 1;
                    for part in parts {
                        if let Part::Variable { name, optional } = part {
                            if optional && !whole {
                                self.malformed.push((
                                    step,
                                    node.at,
                                    SubstituteError::Optional(name.to_owned()),
                                ));
                            }
                            self.uses.push(Use { step, name, optional, at: node.at });
                        }
                    }
                }
                Err(error) => self.malformed.push((step, node.at, error)),
            },
            Kind::List(items) => items.iter().for_each(|item| self.collect(step, item)),
            Kind::Map(entries) => {
                for (key, value) in entries {
                    if key.text.contains("${") {
                        self.malformed.push((step, key.at, SubstituteError::Key(key.text.clone())));
                    }
                    self.collect(step, value);
                }
            }
            Kind::Null | Kind::Bool(_) | Kind::Number(_) => {}
        }
    }

    /// Names of all variables that are used.
    pub fn names(&self) -> impl Iterator<Item = &'a str> {
        self.uses.iter().map(|found| found.name)
    }

    /// Names of all variables that were used.
    pub fn into_names(self) -> impl Iterator<Item = &'a str> {
        self.uses.into_iter().map(|found| found.name)
    }

    /// Tells what has no value and which cell of the table nobody reads. The steps with such faults are returned.
    pub fn check(
        &self,
        sample: &Vars,
        needs: Option<&Needs>,
        cases: &[(&Node, Case)],
        faults: &mut Faults<'_>,
    ) -> BTreeSet<usize> {
        let mut broken = BTreeSet::new();
        for (step, at, error) in &self.malformed {
            broken.insert(*step);
            let piece = match error {
                SubstituteError::Optional(name) => format!("${{{name}"),
                _ => "${".to_owned(),
            };
            faults.add(faults.locate(*at, &piece), error.to_string());
        }
        for found in &self.uses {
            if faults.is_full() {
                break;
            }
            let problem = match found.name.strip_prefix("case.") {
                Some(cell) => case_problem(cell, found.optional, cases),
                None if sample.get(found.name).is_some() => None,
                None => Some(unknown(found.name, sample, needs, cases)),
            };
            if let Some(problem) = problem {
                broken.insert(found.step);
                faults.add(faults.locate(found.at, &format!("${{{}", found.name)), problem);
            }
        }
        let used: BTreeSet<&str> = self.names().filter_map(|name| name.strip_prefix("case.")).collect();
        for (node, case) in cases {
            for cell in case.values.keys().filter(|cell| !used.contains(cell.as_str())) {
                faults.add(node.key_at(cell), format!("nothing in the steps uses `${{case.{cell}}}`"));
            }
        }
        broken
    }
}

fn case_problem(cell: &str, optional: bool, cases: &[(&Node, Case)]) -> Option<String> {
    let has = |case: &Case| cell == "name" || case.values.contains_key(cell);
    if cases.is_empty() {
        return Some(format!("`${{case.{cell}}}` needs a table, `cases`, and there is none"));
    }
    if cases.iter().all(|(_, case)| has(case)) || (optional && cases.iter().any(|(_, case)| has(case))) {
        return None;
    }
    if let Some((_, case)) = cases.iter().find(|(_, case)| !has(case))
        && cases.iter().any(|(_, case)| has(case))
    {
        return Some(format!(
            "the case `{}` has no `{cell}`; `${{case.{cell}?}}` lets the key go there",
            case.name
        ));
    }
    let cells = cases.iter().flat_map(|(_, case)| case.values.keys()).map(String::as_str);
    Some(format!("no case has `{cell}`{}", did_you_mean(nearest(cell, cells))))
}

fn unknown(name: &str, sample: &Vars, needs: Option<&Needs>, cases: &[(&Node, Case)]) -> String {
    let without_pool = needs.is_some_and(|needs| !needs.wants_pool());
    if without_pool && (name == "pool" || name.starts_with("chunk.")) {
        return format!(
            "`${{{name}}}` needs a pool: say so with `needs: {{nodes: …}}` or `needs: {{pool: create}}`"
        );
    }
    let cells: Vec<String> =
        cases.iter().flat_map(|(_, case)| case.values.keys()).map(|cell| format!("case.{cell}")).collect();
    let known = sample.names().chain(cells.iter().map(String::as_str));
    let near = nearest(name, known).map(|name| format!("${{{name}}}"));
    format!("unknown variable `${{{name}}}`{}", did_you_mean(near.as_deref()))
}
