//! Whether a claim is still what its pool wants: the condition `Drifted`.
//!
//! Source: reference A13. In this order: the pool's template has changed (its hash covers labels, annotations, taints, node class, expiry and the like), its
//! requirements no longer admit the node, the instance type is not sold any more.

use buffer_api::{conditions::claim as text, labels};
use jiff::SignedDuration;

use crate::{
    conditions::Wanted,
    index::{ClaimView, Index},
    requirements::Requirements,
};

/// A claim is not asked about its instance type before this age: the list of types may be short for a moment.
const TYPE_MAY_BE_MISSING: SignedDuration = SignedDuration::from_hours(1);

/// The condition `Drifted`, where the claim has drifted.
pub(crate) fn drifted(index: &Index<'_>, view: &ClaimView<'_>) -> Option<Wanted> {
    let pool = index.pool_of(view).filter(|_| view.is_launched())?;
    let drifted = |reason, message| Some(Wanted { kind: text::DRIFTED, status: "True", reason, message });
    let claim = view.claim;
    let of_same_version =
        claim.annotations.get(labels::NODEPOOL_HASH_VERSION).is_some_and(|own| own == labels::HASH_VERSION);
    let hash = claim.annotations.get(labels::NODEPOOL_HASH).filter(|_| of_same_version);
    if hash.is_some_and(|own| *own != pool.hash) {
        return drifted(text::NODE_POOL_DRIFTED, "The template of the NodePool has changed".to_owned());
    }
    let node = index.node_of(view).map(|view| &view.node.labels);
    let value = |key: &str| {
        let all = [Some(&claim.labels), Some(&claim.status.instance_labels), node];
        all.into_iter().flatten().find_map(|labels| labels.get(key)).map(String::as_str)
    };
    let wanted = Requirements::from_api(&pool.pool.spec.template.spec.requirements);
    if let Some((key, _)) = wanted.iter().find(|(key, values)| !values.allows(value(key))) {
        let message = format!("The NodePool requires another value of {key}");
        return drifted(text::REQUIREMENTS_DRIFTED, message);
    }
    let catalogue =
        view.catalogue.and_then(|at| index.catalogues.get(at)).filter(|all| !all.types.is_empty())?;
    let kind = value(labels::INSTANCE_TYPE)?;
    let is_old = claim
        .created
        .and_then(|time| time.checked_add(TYPE_MAY_BE_MISSING).ok())
        .is_some_and(|time| time <= index.now);
    if is_old && catalogue.find(kind).is_none() {
        return drifted(text::INSTANCE_TYPE_NOT_FOUND, format!("Instance type {kind} is not sold any more"));
    }
    None
}
