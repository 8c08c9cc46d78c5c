//! What refers to an earlier step: buffers, marks and hooks.

use std::collections::BTreeSet;

use crate::{
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

fn of_case<'a>(
    scenario: &Scenario,
    steps: impl Iterator<Item = &'a Bound<'a>>,
    complete: bool,
    faults: &mut Faults<'_>,
) {
    let mut buffers = BTreeSet::new();
    let mut marks = BTreeSet::new();
    for step in steps {
        let node = body(step);
        let need_buffers = |names: &[String], node: &Node, faults: &mut Faults<'_>| {
            for (index, name) in names.iter().enumerate() {
                if !buffers.contains(name) {
                    let item = node.get("buffers").and_then(|list| list.items().get(index));
                    let at = item.map_or_else(|| place(node, &["buffer"]), |item| item.at);
                    let near = nearest(name, buffers.iter().map(String::as_str));
                    if near.is_none() && !complete {
                        continue;
                    }
                    let hint = did_you_mean(near);
                    faults.add(
                        at,
                        in_case(step, format!("no step before this one makes the buffer `{name}`{hint}")),
                    );
                }
            }
        };
        match &step.step {
            Step::Headroom(headroom) => need_buffers(&headroom.buffers, node, faults),
            Step::Probe(probe) => need_buffers(std::slice::from_ref(&probe.buffer), node, faults),
            Step::Hold(hold) => {
                if let Some(headroom) = &hold.headroom {
                    need_buffers(&headroom.buffers, node.get("headroom").unwrap_or(node), faults);
                }
            }
            Step::Apply(manifests) => buffers.extend(manifests.0.iter().filter_map(buffer)),
            Step::Create(create) => buffers.extend(buffer(&create.resource)),
            Step::Mark(name) => {
                if !marks.insert(name.clone()) {
                    faults.add(node.at, in_case(step, format!("there is a mark `{name}` already")));
                }
            }
            Step::Assert(assert) => {
                if let Some(mark) = &assert.since
                    && !marks.contains(mark)
                {
                    let near = nearest(mark, marks.iter().map(String::as_str));
                    if near.is_none() && !complete {
                        continue;
                    }
                    let hint = did_you_mean(near);
                    let message = format!("no step before this one sets the mark `{mark}`{hint}");
                    faults.add(place(node, &["since"]), in_case(step, message));
                }
            }
            Step::Trigger(trigger) => {
                let hook = trigger.hook;
                if !hook.is_trigger() {
                    let message = format!("`{hook}` is the harness's own hook");
                    faults.add(place(node, &["hook"]), in_case(step, message));
                } else if !scenario.needs.hooks.contains(&hook) {
                    let message =
                        format!("the hook must be named in the needs too: `needs: {{hooks: [{hook}]}}`");
                    faults.add(place(node, &["hook"]), in_case(step, message));
                }
            }
            _ => {}
        }
    }
}

fn buffer(manifest: &Manifest) -> Option<String> {
    (manifest.target.kind == "CapacityBuffer").then(|| manifest.target.name.clone())
}
