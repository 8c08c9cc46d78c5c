//! Rules that the shape of a file can't express: who is judged by what, and what a scenario may touch.

mod head;
mod judge;
mod objects;
mod order;

use crate::{
    diagnostic::Position,
    scenario::{
        lift::{Bound, Faults},
        model::Scenario,
        raw::{Kind, Node},
    },
};

/// Checks a scenario that has its shape. `bound` has every step once for each case.
pub(super) fn check(scenario: &Scenario, root: &Node, bound: &[Vec<Bound<'_>>], faults: &mut Faults<'_>) {
    // what is missing may stand in a step that could not be read
    let complete =
        bound.iter().map(Vec::len).sum::<usize>() == scenario.steps.len() * scenario.cases.len().max(1);
    head::check(scenario, root, faults);
    judge::check(scenario, root, bound, complete, faults);
    for step in bound.iter().flatten() {
        objects::check(scenario, step, faults);
    }
    order::check(scenario, bound, complete, faults);
}

/// The value of the step's only key.
fn body<'a>(step: &Bound<'a>) -> &'a Node {
    match &step.node.kind {
        Kind::Map(entries) => entries.first().map_or(step.node, |(_, body)| body),
        _ => step.node,
    }
}

/// Where a path of keys ends, or as far as it goes.
fn place(node: &Node, path: &[&str]) -> Position {
    match path {
        [] => node.at,
        [key, rest @ ..] => match node.get(key) {
            Some(value) if rest.is_empty() => value.at,
            Some(value) => place(value, rest),
            None => node.at,
        },
    }
}

/// Adds the case to a message, where there is one.
fn in_case(step: &Bound<'_>, message: impl Into<String>) -> String {
    let message = message.into();
    match step.case {
        Some(case) => format!("{message} (case `{case}`)"),
        None => message,
    }
}
