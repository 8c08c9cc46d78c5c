//! How many chunks a buffer asks for.
//!
//! `min(max(replicas, ⌈percentage⌉), limits)`; the limits alone when neither is *set*. Source: the field texts of the
//! CapacityBuffer API (sizes, "if neither replicas nor percentage is set"), vectors V1–V42 of the requirement catalogue.

use std::collections::BTreeMap;

use buffer_api::{Quantity, quantity::ParseQuantityError};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use crate::snapshot::Resources;

/// What the size of a buffer depends on.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// `spec.replicas`.
    pub replicas: Option<i32>,
    /// `spec.percentage`, only where the reference is to a workload; a template has nothing to take a part of.
    pub percentage: Option<i32>,
    /// Replicas of the workload.
    pub workload_replicas: i32,
    /// `spec.limits`.
    pub limits: Option<&'a BTreeMap<String, ApiQuantity>>,
    /// Effective requests of one chunk.
    pub requests: &'a Resources,
}

/// The number of chunks: at least 0, at most 2³¹−1.
///
/// A limit on a resource of which a chunk requests nothing bounds nothing; if no limit bounds anything, replicas or percentage stand
/// alone, and limits alone give 0 (V16–V19, V40). A limit that is not a quantity is an error.
pub fn size(ask: Ask<'_>) -> Result<i32, ParseQuantityError> {
    let asked = ask
        .replicas
        .map(i128::from)
        .max(ask.percentage.map(|percentage| part_of(ask.workload_replicas, percentage)));
    let bound = match ask.limits {
        Some(limits) => bound(limits, ask.requests)?,
        None => None,
    };
    let size = match (asked, bound) {
        (Some(asked), Some(bound)) => asked.min(bound),
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => 0,
    };
    Ok(i32::try_from(size.max(0)).unwrap_or(i32::MAX))
}

/// Percent of a workload, rounded up. A percentage that is set counts as set on a workload of 0 replicas too (V37).
fn part_of(replicas: i32, percentage: i32) -> i128 {
    let product = i128::from(replicas.max(0)) * i128::from(percentage.max(0));
    (product + 99) / 100
}

/// How many chunks the limits hold; `None` if they name nothing that a chunk requests. `pods` is a count of chunks and not a request.
fn bound(
    limits: &BTreeMap<String, ApiQuantity>,
    requests: &Resources,
) -> Result<Option<i128>, ParseQuantityError> {
    let mut bound = None;
    for (name, limit) in limits {
        let limit = Quantity::try_from(limit)?;
        let request = requests.get(name).filter(|_| name != "pods");
        if let Some(fit) = request.and_then(|request| limit.fits(*request)) {
            bound = Some(bound.map_or(i128::from(fit), |least: i128| least.min(i128::from(fit))));
        }
    }
    Ok(bound)
}
