//! Arithmetic on amounts by resource name.

use std::collections::BTreeMap;

use buffer_api::Quantity;
pub use buffer_api::quantity::parse_amounts as parse;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use crate::snapshot::Resources;

/// Exact amounts as the API writes them.
pub fn to_api(amounts: &Resources) -> BTreeMap<String, ApiQuantity> {
    amounts.iter().map(|(name, amount)| (name.clone(), (*amount).into())).collect()
}

/// The amount of a resource; what is not named is zero.
pub fn get(amounts: &Resources, name: &str) -> Quantity {
    amounts.get(name).copied().unwrap_or_default()
}

/// Adds `count` times `part`.
pub fn add(sum: &mut Resources, part: &Resources, count: i64) {
    for (name, amount) in part {
        let part = amount.times(count);
        match sum.get_mut(name) {
            Some(sum) => *sum = sum.plus(part),
            None => {
                sum.insert(name.clone(), part);
            }
        }
    }
}

/// Takes `count` times `part` away. The result may be negative: more may be in use than there is.
pub fn subtract(from: &mut Resources, part: &Resources, count: i64) {
    add(from, part, count.saturating_neg());
}

/// How many copies of `part` fit into `room`: the minimum over all resources that `part` asks for.
///
/// A resource that `room` does not have is zero there. A part that asks for nothing fits without end.
pub fn copies(room: &Resources, part: &Resources) -> u64 {
    part.iter().filter_map(|(name, amount)| get(room, name).fits(*amount)).min().unwrap_or(u64::MAX)
}

/// How many copies of `part` it takes to have all that `whole` asks for of what a part has: so many parts at most have to go to make room for it.
pub fn needed(part: &Resources, whole: &Resources) -> u64 {
    let copies = |(name, amount): (&String, &Quantity)| {
        let wanted = get(whole, name);
        let full = wanted.fits(*amount)?;
        let times = i64::try_from(full).unwrap_or(i64::MAX);
        Some(if amount.times(times) < wanted { full.saturating_add(1) } else { full })
    };
    part.iter().filter_map(copies).max().unwrap_or(0)
}

/// Per resource the greater amount of the two.
pub fn max(into: &mut Resources, other: &Resources) {
    for (name, amount) in other {
        match into.get_mut(name) {
            Some(greatest) => *greatest = (*greatest).max(*amount),
            None => {
                into.insert(name.clone(), *amount);
            }
        }
    }
}

/// Per resource the smaller amount of the two; what one of them lacks is dropped.
pub fn min(into: &mut Resources, other: &Resources) {
    into.retain(|name, amount| match other.get(name) {
        Some(other) => {
            *amount = (*amount).min(*other);
            true
        }
        None => false,
    });
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn amounts(text: &[(&str, &str)]) -> Resources {
        text.iter().map(|(name, amount)| ((*name).to_owned(), amount.parse().unwrap())).collect()
    }

    #[rstest]
    #[case::tightest_resource_decides(&[("cpu", "8"), ("memory", "4Gi")], &[("cpu", "1"), ("memory", "1Gi")], 4)]
    #[case::missing_is_zero(&[("cpu", "8")], &[("gpu", "1")], 0)]
    #[case::negative_room(&[("cpu", "-1")], &[("cpu", "1")], 0)]
    #[case::zero_request_asks_for_nothing(&[("cpu", "1")], &[("gpu", "0")], u64::MAX)]
    fn counts_copies(#[case] room: &[(&str, &str)], #[case] part: &[(&str, &str)], #[case] want: u64) {
        assert_eq!(copies(&amounts(room), &amounts(part)), want);
    }

    #[rstest]
    #[case::smaller(&[("cpu", "2"), ("pods", "1")], &[("cpu", "1"), ("pods", "1")], 1)]
    #[case::as_big(&[("cpu", "2")], &[("cpu", "2")], 1)]
    #[case::bigger(&[("cpu", "2")], &[("cpu", "2001m")], 2)]
    #[case::in_one_resource(&[("cpu", "2"), ("memory", "1Gi")], &[("cpu", "1"), ("memory", "5Gi")], 5)]
    #[case::of_something_else(&[("cpu", "2")], &[("memory", "1")], 0)]
    fn counts_what_is_needed(
        #[case] part: &[(&str, &str)],
        #[case] whole: &[(&str, &str)],
        #[case] want: u64,
    ) {
        assert_eq!(needed(&amounts(part), &amounts(whole)), want);
    }

    #[test]
    fn minimum_keeps_only_what_both_have() {
        let mut least = amounts(&[("cpu", "4"), ("gpu", "1")]);
        min(&mut least, &amounts(&[("cpu", "2"), ("memory", "1")]));
        assert_eq!(least, amounts(&[("cpu", "2")]));
    }
}
