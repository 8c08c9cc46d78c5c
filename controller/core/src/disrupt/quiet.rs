//! Since when a node has been quiet: the condition `Consolidatable` of its claim.
//!
//! Source: reference A13. `consolidateAfter` runs from the last time at which a pod came to the node or left it, or the node was initialised. Nothing but
//! the condition remembers that time: it is False or Unknown from then on (it flips between the two, so that its transition time moves), True when the
//! wait is over, and its message counts the pods. With `0s` it is True from the start, and nothing is ever written again.
//! Where only empty nodes are consolidated it is Unknown while pods run, whoever comes and goes.

use buffer_api::{
    conditions::claim as text,
    karpenter::ConsolidationPolicy::{WhenEmpty, WhenEmptyOrUnderutilized},
};

use crate::{
    conditions::{Wanted, find},
    duration::{self, Span},
    index::{ClaimView, Index, NodeView},
    plan::Draft,
};

/// The condition `Consolidatable` of an initialised claim; `None` where it must not be (`Never`, or no such pool).
pub(crate) fn consolidatable(index: &Index<'_>, view: &ClaimView<'_>, draft: &mut Draft) -> Option<Wanted> {
    let disruption = &index.pool_of(view)?.pool.spec.disruption;
    // A text that is no duration has made the pool invalid; nothing is consolidated by it.
    let Ok(Span::After(wait)) = duration::parse(&disruption.consolidate_after) else { return None };
    let wanted =
        |status, reason, message| Some(Wanted { kind: text::CONSOLIDATABLE, status, reason, message });
    if wait.is_zero() {
        return wanted("True", text::CONSOLIDATABLE, String::new());
    }
    let pods = || index.node_of(view).into_iter().flat_map(NodeView::reschedulable);
    let count = pods().count();
    if count > 0 && disruption.consolidation_policy == WhenEmpty {
        return wanted("Unknown", "PodsRunning", "Pods run on the node".to_owned());
    }
    let stored = find(&view.claim.status.conditions, text::CONSOLIDATABLE);
    let stirred = stored.is_none_or(|own| {
        let since = own.last_transition_time.0;
        counted(&own.message) != Some(count) || pods().filter_map(|pod| pod.bound_at).any(|time| time > since)
    });
    let status = match stored.map(|own| own.status.as_str()) {
        Some("True") if !stirred => return wanted("True", text::CONSOLIDATABLE, says(count)),
        Some("False") if stirred => "Unknown",
        Some("Unknown") if !stirred => "Unknown",
        _ => "False",
    };
    let since = stored.filter(|_| !stirred).map_or(index.now, |own| own.last_transition_time.0);
    let end = since.checked_add(wait).ok()?;
    if end <= index.now {
        return wanted("True", text::CONSOLIDATABLE, says(count));
    }
    draft.wake(end);
    let after = &disruption.consolidate_after;
    wanted(status, "Quiet", format!("{}; it may go {after} after the last change", says(count)))
}

/// Whether nodes with pods are consolidated too.
pub(crate) fn when_underutilized(index: &Index<'_>, view: &ClaimView<'_>) -> bool {
    index
        .pool_of(view)
        .is_some_and(|view| view.pool.spec.disruption.consolidation_policy == WhenEmptyOrUnderutilized)
}

fn says(pods: usize) -> String {
    format!("{pods} pods run on the node")
}

/// The number of pods in a message of ours.
fn counted(message: &str) -> Option<usize> {
    message.split_once(" pods run on the node").and_then(|(count, _)| count.parse().ok())
}
