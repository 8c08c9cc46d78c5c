//! Waiting by watch: for something to become so, or to stay so.

use std::{future::Future, time::Duration};

use tokio::time::{Instant, timeout_at};

use super::world::{State, World};

/// Something that is not as wanted, at one moment.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Unmet {
    /// What was seen instead.
    pub seen: String,
    /// The difference, line by line.
    pub diff: Option<String>,
}

impl Unmet {
    /// Seen instead, without a diff.
    #[must_use]
    pub fn new(seen: impl Into<String>) -> Self {
        Self { seen: seen.into(), diff: None }
    }
}

/// What was wanted did not come within the patience, or did not stay.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Missed {
    /// What was seen last.
    pub last: Unmet,
    /// How long it was watched.
    pub elapsed: Duration,
    /// Since when it was so, and how many changes were seen.
    pub history: String,
}

impl Missed {
    /// Something that was seen without any waiting.
    #[must_use]
    pub fn at_once(seen: impl Into<String>) -> Self {
        Self { last: Unmet::new(seen), elapsed: Duration::ZERO, history: "seen at once".to_owned() }
    }
}

/// A duration as people read it.
#[must_use]
pub fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

/// Follows how something that is not as wanted changes.
struct Follow {
    started: Instant,
    last: Option<Unmet>,
    changed: Instant,
    changes: usize,
}

impl Follow {
    fn new() -> Self {
        let now = Instant::now();
        Self { started: now, last: None, changed: now, changes: 0 }
    }

    fn saw(&mut self, unmet: Unmet) {
        if self.last.as_ref() != Some(&unmet) {
            self.changes += usize::from(self.last.is_some());
            self.changed = Instant::now();
            self.last = Some(unmet);
        }
    }

    /// It did not come.
    fn missed(self) -> Missed {
        let elapsed = self.started.elapsed();
        let changes = match self.changes {
            0 => "no change was seen".to_owned(),
            1 => "1 change was seen".to_owned(),
            many => format!("{many} changes were seen"),
        };
        let unchanged = seconds(self.changed.elapsed());
        let history = format!("so for the last {unchanged} of {}; {changes}", seconds(elapsed));
        Missed { last: self.last.unwrap_or_default(), elapsed, history }
    }
}

/// Waits until `check` finds the world as wanted, at most for `patience`. Gives how long that took.
///
/// Each change of the world is looked at once; nothing is asked on a timer.
pub async fn eventually(
    world: &World,
    patience: Duration,
    mut check: impl FnMut(&State) -> Result<(), Unmet>,
) -> Result<Duration, Missed> {
    let mut changes = world.changes();
    let mut follow = Follow::new();
    let deadline = follow.started + patience;
    loop {
        changes.mark_unchanged();
        match world.read(&mut check) {
            Ok(()) => return Ok(follow.started.elapsed()),
            Err(unmet) => follow.saw(unmet),
        }
        // the world outlives every wait, so its sender is there
        if !matches!(timeout_at(deadline, changes.changed()).await, Ok(Ok(()))) {
            return Err(follow.missed());
        }
    }
}

/// Something that did not stay as it was.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Broken {
    /// It is a fact: an object was seen so, a node was born.
    Certainly(Unmet),
    /// It counts only if it is confirmed: watches of different kinds are not in step.
    Perhaps,
}

/// Watches for `length` that the world stays as wanted and fails at the first moment when it is not.
///
/// After the last moment `confirm` is asked once more, whatever the watches said.
pub async fn hold<C, F, E>(
    world: &World,
    length: Duration,
    mut check: impl FnMut(&State) -> Result<(), Broken>,
    mut confirm: C,
) -> Result<Result<Duration, Missed>, E>
where
    C: FnMut() -> F,
    F: Future<Output = Result<Result<(), Unmet>, E>>,
{
    let mut changes = world.changes();
    let started = Instant::now();
    let did_not_stay = |last: Unmet| {
        let elapsed = started.elapsed();
        Missed { last, elapsed, history: format!("it stayed so for {}", seconds(elapsed)) }
    };
    loop {
        changes.mark_unchanged();
        let confirmed = match world.read(&mut check) {
            Ok(()) => Ok(()),
            Err(Broken::Certainly(unmet)) => Err(unmet),
            Err(Broken::Perhaps) => confirm().await?,
        };
        if let Err(unmet) = confirmed {
            return Ok(Err(did_not_stay(unmet)));
        }
        if !matches!(timeout_at(started + length, changes.changed()).await, Ok(Ok(()))) {
            break;
        }
    }
    Ok(confirm().await?.map(|()| started.elapsed()).map_err(did_not_stay))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use conformance_report::model::Lane;
    use tokio::time::sleep;

    use super::*;
    use crate::run::world::Scope;

    const SECOND: Duration = Duration::from_secs(1);

    /// Tells the world something at each of these seconds.
    fn world_that_changes_at(seconds: &'static [u64]) -> World {
        let world = World::new(Scope::default());
        let changing = world.clone();
        tokio::spawn(async move {
            let start = Instant::now();
            for second in seconds {
                tokio::time::sleep_until(start + SECOND * u32::try_from(*second).unwrap()).await;
                changing.note(Lane::Node, "n1", "created");
            }
        });
        world
    }

    fn at_least(wanted: usize) -> impl FnMut(&State) -> Result<(), Unmet> {
        move |state| match state.timeline().len() {
            seen if seen >= wanted => Ok(()),
            seen => Err(Unmet::new(format!("{seen} of {wanted}"))),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_so_already_takes_no_time() {
        let world = World::new(Scope::default());
        assert_eq!(eventually(&world, SECOND, at_least(0)).await, Ok(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_it_took_is_measured() {
        let world = world_that_changes_at(&[1, 3, 5]);
        assert_eq!(eventually(&world, 10 * SECOND, at_least(2)).await, Ok(3 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_at_the_last_moment_counts_and_a_later_one_does_not() {
        let world = world_that_changes_at(&[4, 6]);
        assert!(eventually(&world, 5 * SECOND, at_least(1)).await.is_ok());
        let world = world_that_changes_at(&[4, 6]);
        let missed = eventually(&world, 5 * SECOND, at_least(2)).await.unwrap_err();
        assert_eq!((missed.elapsed, missed.last), (5 * SECOND, Unmet::new("1 of 2")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_time_out_says_what_was_seen_and_since_when() {
        let world = world_that_changes_at(&[1, 3]);
        let missed = eventually(&world, 10 * SECOND, at_least(5)).await.unwrap_err();
        insta::assert_snapshot!(
            format!("{}; {}", missed.last.seen, missed.history),
            @"2 of 5; so for the last 7.0 s of 10.0 s; 2 changes were seen"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_looks_while_nothing_changes() {
        let world = world_that_changes_at(&[1, 2]);
        let looks = AtomicUsize::new(0);
        let missed = eventually(&world, 3600 * SECOND, |_| {
            looks.fetch_add(1, Ordering::Relaxed);
            Err(Unmet::new("never"))
        })
        .await;
        assert!(missed.is_err());
        assert_eq!(looks.load(Ordering::Relaxed), 3);
    }

    fn fewer_than(limit: usize, broken: Broken) -> impl FnMut(&State) -> Result<(), Broken> {
        move |state| if state.timeline().len() < limit { Ok(()) } else { Err(broken.clone()) }
    }

    type Confirmed = Result<Result<(), Unmet>, ()>;

    #[tokio::test(start_paused = true)]
    async fn a_hold_lasts_its_length() {
        let world = world_that_changes_at(&[1, 2, 3]);
        let held =
            hold(&world, 10 * SECOND, fewer_than(4, Broken::Perhaps), || async { Confirmed::Ok(Ok(())) })
                .await;
        assert_eq!(held, Ok(Ok(10 * SECOND)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hold_ends_at_the_first_violation() {
        let world = world_that_changes_at(&[1, 2, 3]);
        let confirm = || async {
            sleep(SECOND / 2).await;
            Confirmed::Ok(Err(Unmet::new("confirmed")))
        };
        let missed =
            hold(&world, 10 * SECOND, fewer_than(2, Broken::Perhaps), confirm).await.unwrap().unwrap_err();
        assert_eq!((missed.last.seen.as_str(), missed.elapsed), ("confirmed", 5 * SECOND / 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_fact_needs_no_confirmation() {
        let world = world_that_changes_at(&[1, 2, 3]);
        let fact = Broken::Certainly(Unmet::new("a node was born"));
        let held = hold(&world, 10 * SECOND, fewer_than(2, fact), || async { Confirmed::Err(()) }).await;
        let missed = held.unwrap().unwrap_err();
        assert_eq!((missed.last.seen.as_str(), missed.elapsed), ("a node was born", 2 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_confirmed_does_not_count() {
        let world = world_that_changes_at(&[1, 2, 3]);
        let asked = AtomicUsize::new(0);
        let confirm = || {
            asked.fetch_add(1, Ordering::Relaxed);
            async { Confirmed::Ok(Ok(())) }
        };
        assert_eq!(
            hold(&world, 10 * SECOND, fewer_than(2, Broken::Perhaps), confirm).await,
            Ok(Ok(10 * SECOND))
        );
        // at 2 s, at 3 s, and after the end
        assert_eq!(asked.load(Ordering::Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_moment_is_confirmed_whatever_the_watches_said() {
        let world = World::new(Scope::default());
        let confirm = || async { Confirmed::Ok(Err(Unmet::new("a watch slept"))) };
        let held = hold(&world, SECOND, fewer_than(1, Broken::Perhaps), confirm).await.unwrap();
        assert_eq!(held.unwrap_err().last.seen, "a watch slept");
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_of_the_confirmation_is_no_violation() {
        let world = World::new(Scope::default());
        assert_eq!(
            hold(&world, SECOND, fewer_than(1, Broken::Perhaps), || async { Confirmed::Err(()) }).await,
            Err(())
        );
    }
}
