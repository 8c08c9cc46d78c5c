//! Verbs that count: nodes, claims, events, pods.

use super::Held;
use crate::{
    run::{
        context::Context,
        wait::Unmet,
        world::{self, Recorded, State},
    },
    scenario::{Count, EventKind, EventStep, NodeCount, PodPhase, Pods},
    waits::Wait,
};

pub(super) async fn lives(
    context: &Context,
    kind: &'static str,
    step: &NodeCount,
    within: Option<Wait>,
) -> Held {
    let wanted = format!("{kind}s: {}", step.describe());
    let check = |state: &State| {
        let count = state.count(kind);
        if is_as_wanted(step, count) {
            return Ok(());
        }
        let world::Count { now, baseline, born, lost } = count;
        Err(Unmet {
            seen: format!("{now} now, {baseline} at the start, {born} born, {lost} lost"),
            diff: Some(story(state, kind)),
        })
    };
    Ok(Some(context.wait(within.unwrap_or(Wait::Provision), wanted, check).await?))
}

fn is_as_wanted(step: &NodeCount, count: world::Count) -> bool {
    let number = |wanted: Count| match wanted {
        Count::Exactly(number) => usize::try_from(number).unwrap_or(usize::MAX),
        Count::Baseline => count.baseline,
    };
    let same = |wanted: u32, seen: usize| usize::try_from(wanted) == Ok(seen);
    step.equals.is_none_or(|wanted| count.now == number(wanted))
        && step.at_least.is_none_or(|wanted| count.now >= number(wanted))
        && step.at_most.is_none_or(|wanted| count.now <= number(wanted))
        && step.born.is_none_or(|wanted| same(wanted, count.born))
        && step.lost.is_none_or(|wanted| same(wanted, count.lost))
}

/// Every node or claim that was there since the start, one a line.
pub(super) fn story(state: &State, kind: &str) -> String {
    let mut lines: Vec<_> = state
        .lives(kind)
        .map(|(_, life)| {
            let birth = if life.before { "was there" } else { "born" };
            let death = if life.lost { ", lost" } else { "" };
            format!("  {}: {birth}{death}\n", life.name)
        })
        .collect();
    lines.sort();
    lines.concat()
}

pub(super) async fn event(context: &Context, step: &EventStep, within: Option<Wait>) -> Held {
    let message = step.message.as_deref().unwrap_or_default();
    let wanted = format!("an event {} \"{message}\" on {}", step.reason, step.regarding);
    let kind = match step.regarding.kind {
        EventKind::CapacityBuffer => "CapacityBuffer",
        EventKind::Node => "Node",
        EventKind::NodeClaim => "NodeClaim",
        EventKind::Pod => "Pod",
    };
    let about = |event: &&Recorded| {
        event.kind == kind && step.regarding.name.as_ref().is_none_or(|name| *name == event.name)
    };
    let check = |state: &State| {
        let mut events = state.events().iter().filter(about);
        if events.any(|event| event.reason == step.reason && event.message.contains(message)) {
            return Ok(());
        }
        let seen: Vec<_> = state
            .events()
            .iter()
            .filter(about)
            .map(|event| format!("  {}: {} {}\n", event.name, event.reason, event.message))
            .collect();
        Err(Unmet { seen: format!("{} other events on such objects", seen.len()), diff: Some(seen.concat()) })
    };
    Ok(Some(context.wait(within.unwrap_or(Wait::Observe), wanted, check).await?))
}

pub(super) async fn pods(context: &Context, step: &Pods, within: Option<Wait>) -> Held {
    let phase = step.phase.map(|phase| match phase {
        PodPhase::Pending => "Pending",
        PodPhase::Running => "Running",
        PodPhase::Succeeded => "Succeeded",
        PodPhase::Failed => "Failed",
    });
    let parts = [
        step.count.map(|count| format!("count {count}")),
        step.bound.map(|bound| format!("{bound} bound")),
        phase.map(|phase| format!("all {phase}")),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    let wanted = format!("pods {:?}: {}", step.selector, parts.join(", "));
    let namespace = &context.scope.namespace;
    let check = |state: &State| {
        let selected = |labels: &std::collections::BTreeMap<String, String>| {
            step.selector.iter().all(|(key, value)| labels.get(key) == Some(value))
        };
        let pods: Vec<_> =
            state.pods().filter(|pod| pod.namespace == *namespace && selected(&pod.labels)).collect();
        let bound = pods.iter().filter(|pod| pod.node.is_some()).count();
        let same = |wanted: Option<u32>, seen: usize| {
            wanted.is_none_or(|wanted| usize::try_from(wanted) == Ok(seen))
        };
        let phases = phase.is_none_or(|phase| pods.iter().all(|pod| pod.phase == phase));
        if same(step.count, pods.len()) && same(step.bound, bound) && phases {
            return Ok(());
        }
        let lines: Vec<_> = pods
            .iter()
            .map(|pod| {
                let node = pod.node.as_deref().unwrap_or("no node");
                format!("  {}: {} on {node}\n", pod.name, pod.phase)
            })
            .collect();
        Err(Unmet { seen: format!("{} pods, {bound} bound", pods.len()), diff: Some(lines.concat()) })
    };
    Ok(Some(context.wait(within.unwrap_or(Wait::Bind), wanted, check).await?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    #[rstest]
    #[case(json!({"equals": 3}), true)]
    #[case(json!({"equals": 2}), false)]
    #[case(json!({"equals": "baseline"}), false)]
    #[case(json!({"atLeast": "baseline", "atMost": 3}), true)]
    #[case(json!({"atLeast": 4}), false)]
    #[case(json!({"atMost": 2}), false)]
    #[case(json!({"equals": 3, "born": 4, "lost": 2}), true)]
    #[case(json!({"equals": 3, "born": 2}), false)]
    #[case(json!({"lost": 0}), false)]
    fn counted(#[case] step: Value, #[case] expected: bool) {
        let step: NodeCount = serde_json::from_value(step).unwrap();
        let count = world::Count { now: 3, baseline: 1, born: 4, lost: 2 };
        assert_eq!(is_as_wanted(&step, count), expected);
    }
}
