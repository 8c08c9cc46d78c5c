//! `offset`, `trigger`, `mark`.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::Held;
use crate::{
    run::{context::Context, hooks, outcome::Failure, world::State},
    scenario::{Offset, OffsetFrom, Trigger},
};

/// The only timer: waits until the clock stands where the step says. A change of the object meanwhile begins it anew.
pub(super) async fn offset(context: &Context, step: &Offset) -> Held {
    let OffsetFrom::LastStatusWrite = step.from;
    let last_write = |state: &State| {
        let mut objects = state.of_kind(&step.of.kind);
        let key = objects.find(|(key, _)| {
            key.name == step.of.name && key.namespace.as_deref() == Some(&context.scope.namespace)
        });
        key.and_then(|(key, _)| state.tracked(key)).map(|tracked| tracked.status_changed)
    };
    let missing = || Failure::Broken(format!("{}/{} was never seen", step.of.kind, step.of.name));
    let started = Instant::now();
    let mut changes = context.world.changes();
    loop {
        changes.mark_unchanged();
        let written = context.world.read(last_write).ok_or_else(missing)?;
        let rest = until_offset(written.elapsed(), step.period, step.at);
        if started.elapsed() > step.period * 10 {
            return Err(Failure::Broken(format!(
                "the status of {}/{} never rests",
                step.of.kind, step.of.name
            )));
        }
        let moved = async {
            while changes.changed().await.is_ok() {
                if context.world.read(last_write) != Some(written) {
                    return;
                }
            }
            // the world is gone: so is its clock
            std::future::pending::<()>().await;
        };
        if timeout(rest, moved).await.is_err() {
            return Ok(Some(started.elapsed()));
        }
    }
}

/// How long until the clock stands `at` after a multiple of `period`, counted from `since` ago.
fn until_offset(since: Duration, period: Duration, at: Duration) -> Duration {
    let nanos = |duration: Duration| duration.as_nanos();
    let period_nanos = nanos(period).max(1);
    let phase = nanos(since) % period_nanos;
    let rest = (nanos(at) % period_nanos + period_nanos - phase) % period_nanos;
    Duration::from_nanos(u64::try_from(rest).unwrap_or(u64::MAX))
}

pub(super) async fn trigger(context: &Context, step: &Trigger) -> Held {
    let ran = hooks::run(&context.shared, step.hook, context.scope.pool.as_deref()).await;
    match ran {
        Some(Ok(())) => Ok(None),
        Some(Err(why)) => Err(Failure::Broken(format!("hook {}: {why}", step.hook))),
        None => Err(Failure::Broken(format!("the implementation declares no hook {}", step.hook))),
    }
}

pub(super) fn mark(context: &mut Context, name: &str) {
    context.marks.insert(name.to_owned(), Instant::now());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case(0, 12)]
    #[case(12, 0)]
    #[case(13, 29)]
    #[case(29, 13)]
    #[case(30, 12)]
    #[case(100, 2)]
    fn until(#[case] since: u64, #[case] expected: u64) {
        let seconds = Duration::from_secs;
        assert_eq!(until_offset(seconds(since), seconds(30), seconds(12)), seconds(expected));
    }

    proptest! {
        #[test]
        fn always_lands_on_the_offset(since in 0..10_000_000_u64, period in 1..100_000_u64, at in 0..100_000_u64) {
            let millis = Duration::from_millis;
            let rest = until_offset(millis(since), millis(period), millis(at));
            prop_assert!(rest < millis(period));
            let landed = (millis(since) + rest).as_millis() % u128::from(period);
            prop_assert_eq!(landed, u128::from(at % period));
        }
    }
}
