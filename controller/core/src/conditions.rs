//! Building and comparing `metav1.Condition`s.
//!
//! `lastTransitionTime` moves only when the status flips (API conventions, row G5 of the requirement catalogue).

use jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// What a condition should say.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Type.
    pub kind: &'static str,
    /// Status: `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// Reason.
    pub reason: &'static str,
    /// Message.
    pub message: String,
}

impl Wanted {
    /// The condition to store: the stored transition time is kept while the status stays what it is.
    #[must_use]
    pub fn over(self, stored: &[Condition], generation: Option<i64>, now: Timestamp) -> Condition {
        let kept = find(stored, self.kind).filter(|old| old.status == self.status);
        Condition {
            last_transition_time: kept
                .map_or_else(|| Time(whole_seconds(now)), |old| old.last_transition_time.clone()),
            message: self.message,
            observed_generation: generation,
            reason: self.reason.to_owned(),
            status: self.status.to_owned(),
            type_: self.kind.to_owned(),
        }
    }
}

/// The condition of a type.
#[must_use]
pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// Whether a condition is True.
#[must_use]
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.status == "True")
}

/// Whether `wanted` says what `stored` says about each of `kinds`, which are all that we own.
#[must_use]
pub fn same(stored: &[Condition], wanted: &[Condition], kinds: &[&str]) -> bool {
    kinds.iter().all(|kind| find(stored, kind) == find(wanted, kind))
}

/// The API stores whole seconds; so do we, so that what is written equals what is read back.
fn whole_seconds(time: Timestamp) -> Timestamp {
    let round = TimestampRound::new().smallest(Unit::Second).mode(RoundMode::Floor);
    time.round(round).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(status: &'static str, reason: &'static str) -> Wanted {
        Wanted { kind: "Ready", status, reason, message: String::new() }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::new(second, 999_000_000).unwrap()
    }

    #[test]
    fn transition_time_moves_only_with_the_status() {
        let first = wanted("False", "A").over(&[], Some(1), at(10));
        assert_eq!(first.last_transition_time.0, Timestamp::new(10, 0).unwrap());
        let second = wanted("False", "B").over(std::slice::from_ref(&first), Some(2), at(20));
        assert_eq!(second.last_transition_time, first.last_transition_time);
        assert_eq!((second.reason.as_str(), second.observed_generation), ("B", Some(2)));
        let third = wanted("True", "C").over(&[second], Some(2), at(30));
        assert_eq!(third.last_transition_time.0, Timestamp::new(30, 0).unwrap());
    }
}
