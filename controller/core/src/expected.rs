//! What the node of a claim will be like, as far as it is known before the node is there.

use buffer_api::labels;

use crate::{
    amounts,
    index::{ClaimView, Index},
    offers::Type,
    requirements::{Requirements, Values},
    snapshot::Resources,
};

/// The instance types that a claim may become: the one that it has become, those that it names, or all that are as it demands.
pub fn types<'a>(index: &'a Index<'a>, view: &ClaimView<'a>) -> Vec<&'a Type> {
    let Some(catalogue) = view.catalogue.and_then(|at| index.catalogues.get(at)) else { return Vec::new() };
    let known = |labels: &'a crate::snapshot::Labels| labels.get(labels::INSTANCE_TYPE);
    let claim = view.claim;
    if let Some(name) = known(&claim.status.instance_labels).or_else(|| known(&claim.labels)) {
        return catalogue.find(name).into_iter().collect();
    }
    let wanted = Requirements::from_api(&view.claim.spec.requirements);
    match wanted.get(labels::INSTANCE_TYPE).and_then(Values::finite) {
        Some(names) => names.iter().filter_map(|name| catalogue.find(name)).collect(),
        None => catalogue.types.iter().filter(|kind| kind.suits(&wanted, catalogue)).collect(),
    }
}

/// What a claim's node will offer at least: what the cloud says once it is launched, else what the smallest of its types offers, else what
/// was asked for.
pub fn allocatable<'a>(index: &'a Index<'a>, view: &ClaimView<'a>) -> Resources {
    of_cloud(&view.claim.status.allocatable)
        .or_else(|| {
            types(index, view).into_iter().map(|kind| kind.allocatable.clone()).reduce(|mut least, other| {
                amounts::min(&mut least, &other);
                least
            })
        })
        .unwrap_or_else(|| requests(view))
}

/// The size that a claim's node will have at most.
pub fn capacity<'a>(index: &'a Index<'a>, view: &ClaimView<'a>) -> Resources {
    let node = index.node_of(view).map(|view| &view.node.capacity).filter(|size| !size.is_empty());
    node.cloned()
        .or_else(|| of_cloud(&view.claim.status.capacity))
        .or_else(|| {
            types(index, view).into_iter().map(|kind| kind.capacity.clone()).reduce(|mut most, other| {
                amounts::max(&mut most, &other);
                most
            })
        })
        .unwrap_or_else(|| requests(view))
}

/// Amounts that the cloud wrote. Nothing, or what is not a quantity, says nothing.
fn of_cloud(
    amounts: &std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>,
) -> Option<Resources> {
    amounts::parse(amounts).ok().filter(|amounts| !amounts.is_empty())
}

fn requests(view: &ClaimView<'_>) -> Resources {
    amounts::parse(&view.claim.spec.resources.requests).unwrap_or_default()
}
