//! Who may go. For now one method: emptiness.
//!
//! Two phases. First a node that nothing needs is marked (taint `karpenter.sh/disrupted:NoSchedule`). When the snapshot shows the mark and the
//! node is needed by nothing still, its claim is deleted (a plan that marks asks to be called again at once); if it is needed again, the mark is taken off. So no pod can slip in between
//! the decision and the deletion. Source: design 6, reference A13–A15.
//!
//! "Needed" is asked of this very plan: no pod that would have to move runs there, and no demand (real or chunk) was placed
//! there. `consolidateAfter` runs from the time at which the claim became quiet, which is what the
//! condition `Consolidatable` remembers: Unknown while pods run, False from the time they are gone (or the node was initialised), True
//! when `consolidateAfter` has passed. With `0s` it is True from the start.

use buffer_api::{
    conditions::{self, claim as text},
    karpenter::{Budget, DisruptionReason},
    labels::{DISRUPTED_TAINT, DO_NOT_DISRUPT},
};
use k8s_openapi::api::core::v1::Taint;

use crate::{
    conditions::{Wanted, find},
    demand::Group,
    duration::{self, Span},
    index::{ClaimView, Index, NodeView},
    lifecycle::Leaving,
    place::Room,
    plan::{DeleteClaim, DeleteReason, Draft, Event, EventObject},
};

/// The taint that marks a node for removal.
#[must_use]
pub fn mark() -> Taint {
    Taint { key: DISRUPTED_TAINT.to_owned(), effect: "NoSchedule".to_owned(), value: None, time_added: None }
}

/// What this plan placed on a node.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Use {
    /// Nothing.
    #[default]
    Nothing,
    /// Chunks of buffers only.
    Chunks,
    /// Real pods too.
    Pods,
}

/// Marks, unmarks and deletes.
pub(crate) fn disrupt(
    index: &Index<'_>,
    leaving: &Leaving,
    rooms: &[Room<'_>],
    groups: &[Group<'_>],
    draft: &mut Draft,
) {
    let uses = uses(index.nodes.len(), rooms, groups);
    for (at, pool) in index.pools.iter().enumerate() {
        let nodes = || {
            index.nodes.iter().enumerate().filter_map(move |(number, view)| {
                let claim = index.claim_of(view).filter(|claim| claim.pool == Some(at))?;
                view.initialized.then_some((number, view, claim))
            })
        };
        let is_busy = |number: usize, view: &NodeView<'_>| {
            leaving.nodes[number] || !view.node.ready || view.has_taint(DISRUPTED_TAINT)
        };
        let budget = allowed(&pool.pool.spec.disruption.budgets, nodes().count(), DisruptionReason::Empty);
        let busy = nodes().filter(|(number, view, _)| is_busy(*number, view)).count();
        let mut left = budget.saturating_sub(busy);
        for (number, view, claim) in nodes().filter(|(number, _, _)| !leaving.nodes[*number]) {
            let quiet = is_quiet(index, view, claim, draft);
            let marked = view.has_taint(DISRUPTED_TAINT);
            match (quiet, uses[number]) {
                (true, Use::Nothing) if marked => draft
                    .plan
                    .delete
                    .push(DeleteClaim { name: claim.claim.name.clone(), reason: DeleteReason::Empty }),
                // A node that is silent is counted as busy already.
                (true, Use::Nothing) if left > 0 || budget > 0 && !view.node.ready => {
                    draft.node(&view.node.name).add_taints.push(mark());
                    draft.wake(index.now);
                    left = left.saturating_sub(usize::from(view.node.ready));
                }
                (true, Use::Nothing) => {}
                (_, purpose) => {
                    if marked {
                        let taint = mark();
                        draft.node(&view.node.name).remove_taints.push((taint.key, taint.effect));
                        draft.wake(index.now);
                    }
                    if quiet && purpose == Use::Chunks {
                        draft.plan.events.extend(kept_by_chunks(view, claim));
                    }
                }
            }
        }
    }
}

fn uses(nodes: usize, rooms: &[Room<'_>], groups: &[Group<'_>]) -> Vec<Use> {
    let mut uses = vec![Use::Nothing; nodes];
    for room in rooms {
        let Some(purpose) = room.node.and_then(|at| uses.get_mut(at)) else { continue };
        for (group, _) in &room.placed {
            if groups.get(*group).is_some_and(Group::is_virtual) {
                if *purpose == Use::Nothing {
                    *purpose = Use::Chunks;
                }
            } else {
                *purpose = Use::Pods;
            }
        }
    }
    uses
}

/// Whether a node runs nothing and may go as far as its own state and the pool's rules say, budgets apart.
fn is_quiet(index: &Index<'_>, view: &NodeView<'_>, claim: &ClaimView<'_>, draft: &mut Draft) -> bool {
    let forbids = |annotations: &crate::snapshot::Labels| {
        annotations.get(DO_NOT_DISRUPT).is_some_and(|value| value == "true")
    };
    view.reschedulable().next().is_none()
        && !view.pods.iter().any(|pod| pod.do_not_disrupt && !pod.mirror)
        && !forbids(&view.node.annotations)
        && !forbids(&claim.claim.annotations)
        && consolidatable(index, claim, draft).is_some_and(|condition| condition.status == "True")
}

/// The condition `Consolidatable` of an initialised claim; `None` where it must not be (`Never`, or no such pool).
pub(crate) fn consolidatable(index: &Index<'_>, view: &ClaimView<'_>, draft: &mut Draft) -> Option<Wanted> {
    let pool = index.pool_of(view)?.pool;
    // A text that is no duration has made the pool invalid; nothing is consolidated by it.
    let Ok(Span::After(wait)) = duration::parse(&pool.spec.disruption.consolidate_after) else { return None };
    let wanted = |status, reason, message: String| {
        Some(Wanted { kind: text::CONSOLIDATABLE, status, reason, message })
    };
    if wait.is_zero() {
        return wanted("True", text::CONSOLIDATABLE, String::new());
    }
    if index.node_of(view).is_some_and(|node| node.reschedulable().next().is_some()) {
        return wanted("Unknown", "PodsRunning", "Pods run on the node".to_owned());
    }
    let stored = find(&view.claim.status.conditions, text::CONSOLIDATABLE);
    let quiet_since = match stored.map(|own| own.status.as_str()) {
        Some("True") => return wanted("True", text::CONSOLIDATABLE, String::new()),
        Some("False") => stored.map_or(index.now, |own| own.last_transition_time.0),
        _ => index.now,
    };
    match quiet_since.checked_add(wait) {
        Ok(end) if end <= index.now => wanted("True", text::CONSOLIDATABLE, String::new()),
        Ok(end) => {
            draft.wake(end);
            let after = &pool.spec.disruption.consolidate_after;
            wanted("False", "Quiet", format!("Nothing runs on the node; it may go after {after}"))
        }
        Err(_) => None,
    }
}

/// How many of `total` nodes may be away at once for a reason. Percentages are rounded up. A budget with a schedule is
/// always in force here: more is forbidden than was meant, never less. What is no number forbids everything.
fn allowed(budgets: &[Budget], total: usize, reason: DisruptionReason) -> usize {
    let matching =
        budgets.iter().filter(|budget| budget.reasons.is_empty() || budget.reasons.contains(&reason));
    matching.map(|budget| bound(&budget.nodes, total).unwrap_or(0)).min().unwrap_or(usize::MAX)
}

/// A number of nodes, or a percentage of `total`.
pub(crate) fn bound(nodes: &str, total: usize) -> Option<usize> {
    match nodes.strip_suffix('%') {
        None => nodes.parse().ok(),
        Some(percent) => {
            let percent: usize = percent.parse().ok().filter(|percent| *percent <= 100)?;
            Some((total * percent).div_ceil(100))
        }
    }
}

/// Source: reference A15, the event that says that buffers keep a node.
fn kept_by_chunks(view: &NodeView<'_>, claim: &ClaimView<'_>) -> [Event; 2] {
    let event = |about| Event {
        about,
        reason: conditions::UNCONSOLIDATABLE_EVENT,
        message: conditions::has_buffer_pods(&view.node.name),
        warning: false,
    };
    [
        event(EventObject::Node(view.node.name.clone(), view.node.uid.clone())),
        event(EventObject::Claim(claim.claim.name.clone(), claim.claim.uid.clone())),
    ]
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn budget(nodes: &str) -> Budget {
        Budget { nodes: nodes.to_owned(), ..Budget::default() }
    }

    #[rstest]
    #[case::default_of_three(vec![budget("10%")], 3, 1)]
    #[case::default_of_thirty(vec![budget("10%")], 30, 3)]
    #[case::default_of_thirty_one(vec![budget("10%")], 31, 4)]
    #[case::number(vec![budget("5")], 3, 5)]
    #[case::least_wins(vec![budget("5"), budget("0")], 30, 0)]
    #[case::all(vec![budget("100%")], 7, 7)]
    #[case::none_given(vec![], 7, usize::MAX)]
    #[case::nonsense_forbids(vec![budget("many")], 7, 0)]
    #[case::too_much_forbids(vec![budget("101%")], 7, 0)]
    #[case::other_reason(vec![Budget { reasons: vec![DisruptionReason::Drifted], ..budget("0") }], 7, usize::MAX)]
    #[case::this_reason(vec![Budget { reasons: vec![DisruptionReason::Empty], ..budget("0") }], 7, 0)]
    #[case::scheduled(vec![Budget { schedule: Some("@daily".to_owned()), ..budget("0") }], 7, 0)]
    fn bounds_disruptions(#[case] all: Vec<Budget>, #[case] total: usize, #[case] want: usize) {
        assert_eq!(allowed(&all, total, DisruptionReason::Empty), want);
    }
}
