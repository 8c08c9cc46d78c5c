//! When an object may be written again after a failure.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use crate::kind::ObjectRef;

const FIRST: Duration = Duration::from_millis(100);

/// Waiting times by object.
#[derive(Debug, Default)]
pub struct Backoff {
    waits: HashMap<ObjectRef, Wait>,
}

#[derive(Debug)]
struct Wait {
    failures: u32,
    until: Instant,
}

impl Backoff {
    /// A write has failed: the object rests, from 100 ms on, twice as long each time, at most `longest`. Gives the time.
    pub fn failed(&mut self, object: &ObjectRef, longest: Duration, now: Instant) -> Duration {
        let wait = self.waits.entry(object.clone()).or_insert(Wait { failures: 0, until: now });
        let rest = FIRST.saturating_mul(1 << wait.failures.min(16)).min(longest);
        wait.failures += 1;
        wait.until = now + rest;
        rest
    }

    /// Writes were carried out.
    pub fn succeeded(&mut self, object: &ObjectRef) {
        self.waits.remove(object);
    }

    /// Leaves an object alone for a while, until the watch shows what has become of it.
    pub fn hold(&mut self, object: &ObjectRef, span: Duration, now: Instant) {
        self.waits.insert(object.clone(), Wait { failures: 0, until: now + span });
    }

    /// Whether an object rests.
    pub fn rests(&self, object: &ObjectRef, now: Instant) -> bool {
        self.waits.get(object).is_some_and(|wait| wait.until > now)
    }

    /// When the next rest after `now` ends.
    pub fn next(&self, now: Instant) -> Option<Instant> {
        self.waits.values().map(|wait| wait.until).filter(|&until| until > now).min()
    }

    /// Forgets failures that are over for long: their objects were not written again, so nothing is wrong any more.
    pub fn forget(&mut self, now: Instant) {
        self.waits.retain(|_, wait| now < wait.until + Duration::from_mins(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Kind;

    #[test]
    fn rests_grow_up_to_a_cap_and_end_with_a_success() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        let node = ObjectRef::cluster(Kind::Node, "n");
        let cap = Duration::from_secs(1);
        let rests: Vec<_> = (0..6).map(|_| backoff.failed(&node, cap, now).as_millis()).collect();
        assert_eq!(rests, [100, 200, 400, 800, 1000, 1000]);
        assert!(backoff.rests(&node, now));
        assert_eq!(backoff.next(now), Some(now + cap));
        assert!(!backoff.rests(&node, now + cap));
        assert_eq!(backoff.next(now + cap), None);
        assert_eq!(backoff.failed(&node, Duration::MAX, now + cap).as_millis(), 6400);
        backoff.succeeded(&node);
        assert!(!backoff.rests(&node, now));
    }

    #[test]
    fn old_failures_are_forgotten() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        let node = ObjectRef::cluster(Kind::Node, "n");
        backoff.failed(&node, Duration::MAX, now);
        backoff.forget(now + Duration::from_secs(299));
        assert_eq!(backoff.failed(&node, Duration::MAX, now).as_millis(), 200);
        backoff.forget(now + Duration::from_mins(10));
        assert_eq!(backoff.failed(&node, Duration::MAX, now).as_millis(), 100);
    }
}
