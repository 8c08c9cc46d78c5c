//! What refers to an earlier step: buffers, marks and hooks.

use std::collections::BTreeSet;

use crate::{
    diagnostic::Position,
    implementation::Hook,
    scenario::{
        lift::{Bound, Faults},
        lint::{body, in_case, place},
        model::Scenario,
        object::Manifest,
        raw::Node,
        step::Step,
    },
    words::{did_you_mean, nearest},
};

pub(super) fn check(scenario: &Scenario, bound: &[Vec<Bound<'_>>], complete: bool, faults: &mut Faults<'_>) {
    let mut cases: BTreeSet<Option<&str>> = bound.iter().flatten().map(|step| step.case).collect();
    if cases.is_empty() {
        cases.insert(None);
    }
    for case in cases {
        of_case(scenario, bound.iter().flatten().filter(|step| step.case == case), complete, faults);
    }
}

/// What the steps so far have made.
#[derive(Default)]
struct Made {
    buffers: BTreeSet<String>,
    marks: BTreeSet<String>,
}

fn of_case<'a>(
    scenario: &Scenario,
    steps: impl Iterator<Item = &'a Bound<'a>>,
    complete: bool,
    faults: &mut Faults<'_>,
) {
    let mut made = Made::default();
    for step in steps {
        let node = body(step);
        // what is not there may be made by a step that could not be read, unless the name is nearly that of another
        let mut missing = |what: &str, name: &str, known: &BTreeSet<String>, at: Position| {
            if faults.is_full() || known.contains(name) {
                return;
            }
            let near = nearest(name, known.iter().map(String::as_str));
            if complete || near.is_some() {
                let message = format!("no step before this one {what} `{name}`{}", did_you_mean(near));
                faults.add(at, in_case(step, message));
            }
        };
        let mut buffers = |names: &[String], node: &Node| {
            for (index, name) in names.iter().enumerate() {
                let item = node.get("buffers").and_then(|list| list.items().get(index));
                let at = item.map_or_else(|| place(node, &["buffer"]), |item| item.at);
                missing("makes the buffer", name, &made.buffers, at);
            }
        };
        match &step.step {
            Step::Headroom(headroom) => buffers(&headroom.buffers, node),
            Step::Probe(probe) => buffers(std::slice::from_ref(&probe.buffer), node),
            Step::Hold(hold) => {
                if let Some(headroom) = &hold.headroom {
                    buffers(&headroom.buffers, node.get("headroom").unwrap_or(node));
                }
            }
            Step::Assert(assert) => {
                for (key, mark) in [("since", &assert.since), ("before", &assert.before)] {
                    if let Some(mark) = mark {
                        missing("sets the mark", mark, &made.marks, place(node, &[key]));
                    }
                }
            }
            Step::Apply(manifests) => made.buffers.extend(manifests.0.iter().filter_map(buffer)),
            Step::Create(create) => made.buffers.extend(buffer(&create.resource)),
            Step::Mark(name) if !made.marks.insert(name.clone()) => {
                faults.add(node.at, in_case(step, format!("there is a mark `{name}` already")));
            }
            Step::Trigger(trigger) => {
                if let Some(problem) = hook_problem(scenario, trigger.hook) {
                    faults.add(place(node, &["hook"]), in_case(step, problem));
                }
            }
            _ => {}
        }
    }
}

fn hook_problem(scenario: &Scenario, hook: Hook) -> Option<String> {
    if !hook.is_trigger() {
        return Some(format!("`{hook}` is the harness's own hook"));
    }
    let named = scenario.needs.hooks.contains(&hook);
    (!named).then(|| format!("the hook must be named in the needs too: `needs: {{hooks: [{hook}]}}`"))
}

fn buffer(manifest: &Manifest) -> Option<String> {
    (manifest.target.kind == "CapacityBuffer").then(|| manifest.target.name.clone())
}
