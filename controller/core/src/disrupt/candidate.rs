//! Who may be disrupted, and what keeps the others.
//!
//! Source: reference A14 ("Candidate"), A13 (do-not-disrupt), A16 (a `terminationGracePeriod` lets drift pass by pods that forbid it).

use buffer_api::{karpenter::DisruptionReason, labels};

use crate::{
    disrupt::{drift, quiet},
    fit,
    index::{ClaimView, Index, NodeView},
    plan::Draft,
    snapshot::{Labels, Pod},
};

/// What keeps a node from being disrupted for a reason, if anything does. Budgets of its pool are not looked at.
pub(crate) fn blocker(
    index: &Index<'_>,
    view: &NodeView<'_>,
    claim: &ClaimView<'_>,
    reason: DisruptionReason,
) -> Option<String> {
    let forbids =
        |annotations: &Labels| annotations.get(labels::DO_NOT_DISRUPT).is_some_and(|value| value == "true");
    if forbids(&view.node.annotations) || forbids(&claim.claim.annotations) {
        return Some(format!("Node or NodeClaim is annotated with {}", labels::DO_NOT_DISRUPT));
    }
    if reason == DisruptionReason::Drifted && claim.claim.spec.termination_grace_period.is_some() {
        return None;
    }
    if let Some(pod) = view.pods.iter().find(|pod| pod.do_not_disrupt && !pod.mirror) {
        return Some(format!("Pod \"{}\" is annotated with {}", text(pod), labels::DO_NOT_DISRUPT));
    }
    view.reschedulable().find_map(|pod| kept_by_budget(index, pod))
}

/// A pod that its PodDisruptionBudgets do not let go. More than one budget on a pod is an error of the eviction API.
fn kept_by_budget(index: &Index<'_>, pod: &Pod) -> Option<String> {
    let mut protects = index.disruption_budgets.iter().filter(|budget| {
        budget.key.namespace == pod.key.namespace
            && budget.selector.as_ref().is_some_and(|selector| fit::selects(selector, &pod.shape.labels))
    });
    let first = protects.next()?;
    if protects.next().is_some() {
        return Some(format!("Pod \"{}\" has several PodDisruptionBudgets", text(pod)));
    }
    (first.allowed < 1).then(|| {
        format!("PodDisruptionBudget \"{}\" prevents the eviction of pod \"{}\"", first.key.name, text(pod))
    })
}

fn text(pod: &Pod) -> String {
    format!("{}/{}", pod.key.namespace, pod.key.name)
}

/// Why a node that is not empty may go: it has drifted, or has been quiet for long enough to be consolidated. Nothing where something keeps it.
pub(crate) fn reason(
    index: &Index<'_>,
    view: &NodeView<'_>,
    claim: &ClaimView<'_>,
    draft: &mut Draft,
) -> Option<DisruptionReason> {
    let drifted = drift::drifted(index, claim).is_some().then_some(DisruptionReason::Drifted);
    let reason = drifted.or_else(|| {
        let quiet = quiet::when_underutilized(index, claim) && is_quiet(index, claim, draft);
        quiet.then_some(DisruptionReason::Underutilized)
    })?;
    (view.node.ready && blocker(index, view, claim, reason).is_none()).then_some(reason)
}

/// Whether the pool's `consolidateAfter` has passed.
pub(crate) fn is_quiet(index: &Index<'_>, claim: &ClaimView<'_>, draft: &mut Draft) -> bool {
    quiet::consolidatable(index, claim, draft).is_some_and(|condition| condition.status == "True")
}

/// What the node costs: the price of the offering that was bought. Nothing where it is not sold any more.
pub(crate) fn price(index: &Index<'_>, claim: &ClaimView<'_>, node: &NodeView<'_>) -> Option<f64> {
    let catalogue = claim.catalogue.and_then(|at| index.catalogues.get(at))?;
    let value = |key: &str| {
        let all = [&claim.claim.status.instance_labels, &claim.claim.labels, &node.node.labels];
        all.into_iter().find_map(|labels| labels.get(key)).map(String::as_str)
    };
    let kind = catalogue.find(value(labels::INSTANCE_TYPE)?)?;
    let (zone, capacity_type) = (value(labels::ZONE)?, value(labels::CAPACITY_TYPE)?);
    let mut sold =
        kind.offerings.iter().filter(|sold| sold.zone == zone && sold.capacity_type == capacity_type);
    sold.next().map(|sold| sold.price)
}

/// Whether the claim's instance is a spot instance.
pub(crate) fn is_spot(claim: &ClaimView<'_>) -> bool {
    let all = [&claim.claim.status.instance_labels, &claim.claim.labels];
    all.into_iter().any(|labels| labels.get(labels::CAPACITY_TYPE).is_some_and(|own| own == "spot"))
}
