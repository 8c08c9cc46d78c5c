//! How many chunks the ResourceQuotas of a namespace leave to its buffers: the condition `LimitedByQuotas`.
//!
//! Sources: rows E1–E8 of the requirement catalogue; core/v1 ResourceQuota for keys and scopes. Buffers take what is left in the order in which they
//! were created, the whole namespace anew in each plan. Real pods are counted by the quota's own `status.used`. Keys count
//! with and without the prefix `requests.`; `pods`, `count/…` and `limits.…` say nothing about chunks, which are no objects.

use std::collections::BTreeMap;

use buffer_api::{Quantity, conditions::buffer as text};
use k8s_openapi::api::core::v1::{Affinity, PodAffinityTerm, ScopedResourceSelectorRequirement};

use crate::{
    amounts,
    buffers::Active,
    conditions::{Wanted, find},
    index::sorted,
    snapshot::{PodShape, Quota, Resources, Snapshot},
};

/// Lowers the number of chunks of each buffer to what the quotas of its namespace leave, and says so.
pub(crate) fn limit(active: &mut [Active<'_>], snapshot: &Snapshot) {
    let mut by_namespace: BTreeMap<&str, Vec<Account<'_>>> = BTreeMap::new();
    for quota in sorted(&snapshot.quotas, |quota| &quota.key) {
        by_namespace.entry(&quota.key.namespace).or_default().push(Account::new(quota));
    }
    let mut order: Vec<usize> = (0..active.len()).collect();
    order.sort_by_key(|at| active.get(*at).map(|one| (one.buffer.created, &one.buffer.key)));
    for at in order {
        let Some(active) = active.get_mut(at) else { continue };
        let accounts = by_namespace.get_mut(active.buffer.key.namespace.as_str());
        active.quotas = limit_one(active, accounts.map_or(&mut [], Vec::as_mut_slice));
    }
}

/// Takes one buffer's chunks from the accounts that they fall under. The condition, where the namespace has a quota, or had one.
fn limit_one(active: &mut Active<'_>, accounts: &mut [Account<'_>]) -> Option<Wanted> {
    let chunks = active.resolution.chunks.as_mut()?;
    let requests = &chunks.shape.requests;
    let has_quotas = !accounts.is_empty();
    let mut matching: Vec<&mut Account<'_>> =
        accounts.iter_mut().filter(|account| account.counts(chunks.shape)).collect();
    let wanted = chunks.replicas;
    let left: Vec<i32> = matching.iter().map(|account| account.holds(requests).min(wanted)).collect();
    let allowed = left.iter().copied().min().unwrap_or(wanted);
    for account in &mut matching {
        account.take(requests, allowed);
    }
    chunks.replicas = allowed;
    let condition = |status, message| {
        Some(Wanted { kind: text::LIMITED_BY_QUOTAS, status, reason: text::QUOTAS_ALLOCATED, message })
    };
    if allowed < wanted {
        let names = matching.iter().zip(left).filter(|(_, left)| *left < wanted);
        let names: Vec<&str> = names.map(|(account, _)| account.quota.key.name.as_str()).collect();
        return condition("True", text::limited_message(wanted, allowed, &names));
    }
    let was_said = find(&active.buffer.status.conditions, text::LIMITED_BY_QUOTAS).is_some();
    (has_quotas || was_said).then(|| condition("False", String::new()))?
}

/// A quota with what this plan leaves of it.
struct Account<'a> {
    quota: &'a Quota,
    /// By the name that a pod requests.
    left: Resources,
}

impl<'a> Account<'a> {
    fn new(quota: &'a Quota) -> Self {
        let mut left = Resources::new();
        for (key, hard) in &quota.hard {
            let name = key.strip_prefix("requests.").unwrap_or(key);
            if name == "pods" || name.starts_with("count/") || name.starts_with("limits.") {
                continue;
            }
            let free = hard.minus(quota.used.get(key).copied().unwrap_or_default());
            left.entry(name.to_owned())
                .and_modify(|least: &mut Quantity| *least = free.min(*least))
                .or_insert(free);
        }
        Self { quota, left }
    }

    /// Whether chunks of this shape fall under the quota: all its scopes mean them, and it bounds something that they request.
    fn counts(&self, shape: &PodShape) -> bool {
        let bounds =
            |(name, amount): (&String, &Quantity)| amount.is_positive() && self.left.contains_key(name);
        shape.requests.iter().any(bounds) && self.quota.scopes.iter().all(|scope| selects(scope, shape))
    }

    /// How many chunks are left.
    fn holds(&self, requests: &Resources) -> i32 {
        let bounded = requests.iter().filter_map(|(name, amount)| self.left.get(name)?.fits(*amount));
        bounded.min().map_or(i32::MAX, |chunks| i32::try_from(chunks).unwrap_or(i32::MAX))
    }

    fn take(&mut self, requests: &Resources, chunks: i32) {
        for (name, left) in &mut self.left {
            *left = left.minus(amounts::get(requests, name).times(i64::from(chunks)));
        }
    }
}

/// Whether a scope means pods of this shape. Source: core/v1 ResourceQuotaScope. A scope that is not known, or an operator that does not go with
/// it, means none, as with the API server.
fn selects(scope: &ScopedResourceSelectorRequirement, shape: &PodShape) -> bool {
    let best_effort = ["cpu", "memory"].iter().all(|name| !amounts::get(&shape.requests, name).is_positive());
    let only_exists = |means: bool| means && scope.operator == "Exists";
    match scope.scope_name.as_str() {
        "Terminating" => only_exists(shape.has_deadline),
        "NotTerminating" => only_exists(!shape.has_deadline),
        "BestEffort" => only_exists(best_effort),
        "NotBestEffort" => only_exists(!best_effort),
        "CrossNamespacePodAffinity" => only_exists(shape.affinity.as_ref().is_some_and(crosses_namespaces)),
        "PriorityClass" => {
            let values = scope.values.as_deref().unwrap_or_default();
            let is_in = shape.priority_class.as_ref().is_some_and(|class| values.contains(class));
            match scope.operator.as_str() {
                "Exists" => shape.priority_class.is_some(),
                "DoesNotExist" => shape.priority_class.is_none(),
                "In" => is_in,
                "NotIn" => !is_in,
                _ => false,
            }
        }
        _ => false,
    }
}

/// Whether a term of pod affinity or anti-affinity, required or preferred, may look into other namespaces.
fn crosses_namespaces(affinity: &Affinity) -> bool {
    let crosses = |term: &PodAffinityTerm| {
        term.namespace_selector.is_some() || term.namespaces.as_ref().is_some_and(|names| !names.is_empty())
    };
    let with = affinity.pod_affinity.as_ref();
    let without = affinity.pod_anti_affinity.as_ref();
    let required = [
        with.and_then(|own| own.required_during_scheduling_ignored_during_execution.as_ref()),
        without.and_then(|own| own.required_during_scheduling_ignored_during_execution.as_ref()),
    ];
    let preferred = [
        with.and_then(|own| own.preferred_during_scheduling_ignored_during_execution.as_ref()),
        without.and_then(|own| own.preferred_during_scheduling_ignored_during_execution.as_ref()),
    ];
    required.into_iter().flatten().flatten().any(crosses)
        || preferred.into_iter().flatten().flatten().any(|own| crosses(&own.pod_affinity_term))
}
