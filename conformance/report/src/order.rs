//! The one order of everything in a report, so that equal facts give equal bytes.

use std::cmp::Ordering;

use crate::model::{Report, ScenarioResult};

/// What identifies a result: catalogue before own scenarios, then id, then case, numbers by value (`V2` before `V10`).
pub(crate) fn compare(a: &ScenarioResult, b: &ScenarioResult) -> Ordering {
    let case = |r: &ScenarioResult| r.case.clone().unwrap_or_default();
    b.catalogue
        .cmp(&a.catalogue)
        .then_with(|| natural(&a.id, &b.id))
        .then_with(|| natural(&case(a), &case(b)))
        .then_with(|| a.case.cmp(&b.case))
}

/// Puts all lists of a report in their order and drops doubles from those that are sets.
pub(crate) fn sort(report: &mut Report) {
    report.implementation.profiles.sort_unstable();
    report.implementation.profiles.dedup();
    report.implementation.features.sort_unstable();
    report.implementation.features.dedup();
    report.waits.sort_by(|a, b| a.name.cmp(&b.name));
    for result in &mut report.results {
        result.profiles.sort_unstable();
        result.profiles.dedup();
        result.features.sort_unstable();
        result.features.dedup();
        result.steps.sort_by_key(|step| step.number);
        result.violations.sort_by_key(|violation| violation.step);
        // Stable: what one watch saw in the same millisecond keeps its order.
        result.timeline.sort_by_key(|event| event.at_ms);
        result.leaks.sort_unstable();
        result.leaks.dedup();
    }
    report.results.sort_by(compare);
    report.leaks.sort_unstable();
    report.leaks.dedup();
    report.incidents.sort_unstable();
    report.incidents.dedup();
}

/// Compares texts with the runs of digits in them taken as numbers; a total order.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    while !left.is_empty() && !right.is_empty() {
        let (l, l_rest) = chunk(left);
        let (r, r_rest) = chunk(right);
        let by_value = match (number(l), number(r)) {
            (Some(l), Some(r)) => l.len().cmp(&r.len()).then_with(|| l.cmp(r)),
            _ => l.cmp(r),
        };
        if by_value != Ordering::Equal {
            return by_value;
        }
        (left, right) = (l_rest, r_rest);
    }
    left.len().cmp(&right.len()).then_with(|| a.cmp(b))
}

/// The leading run of digits or of other characters, and the rest.
fn chunk(text: &str) -> (&str, &str) {
    let digits = text.starts_with(|c: char| c.is_ascii_digit());
    let end = text.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(text.len());
    text.split_at(end)
}

/// A run of digits without its leading zeros.
fn number(chunk: &str) -> Option<&str> {
    chunk.starts_with(|c: char| c.is_ascii_digit()).then(|| chunk.trim_start_matches('0'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("V2", "V10", Ordering::Less)]
    #[case("CB-ACT-002", "CB-ACT-010", Ordering::Less)]
    #[case("CB-ACT-1", "CB-ACT-01", Ordering::Greater)]
    #[case("CB-ACT-001", "CB-API-001", Ordering::Less)]
    #[case("V2", "V2b", Ordering::Less)]
    #[case("", "V1", Ordering::Less)]
    #[case("V1", "V1", Ordering::Equal)]
    #[case("99999999999999999999999", "100000000000000000000000", Ordering::Less)]
    fn numbers_by_value(#[case] a: &str, #[case] b: &str, #[case] expected: Ordering) {
        assert_eq!(natural(a, b), expected);
        assert_eq!(natural(b, a), expected.reverse());
    }

    proptest! {
        #[test]
        fn natural_is_a_total_order(mut texts in proptest::collection::vec("[a0-2]{0,4}", 3)) {
            texts.sort_by(|a, b| natural(a, b));
            prop_assert!(texts.is_sorted_by(|a, b| natural(a, b) != Ordering::Greater));
            prop_assert_ne!(natural(&texts[0], &texts[2]), Ordering::Greater);
            prop_assert_eq!(natural(&texts[0], &texts[1]) == Ordering::Equal, texts[0] == texts[1]);
        }
    }
}
