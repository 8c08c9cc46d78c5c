//! `headroom` and `hold`.

use std::sync::Arc;

use super::{Held, assert::Look, count::story};
use crate::{
    run::{
        capacity::Demand,
        context::Context,
        outcome::Failure,
        wait::{Broken, Unmet, hold as hold_for},
        world::{Key, State},
    },
    scenario::{Headroom, Hold},
    waits::Wait,
};

pub(super) async fn headroom(context: &Context, step: &Headroom, within: Option<Wait>) -> Held {
    let demand = Demand::read(context, &step.buffers, step.namespace.as_deref(), step.at_least).await?;
    let check = |state: &State| demand.check(state);
    let waited = context.wait(within.unwrap_or(Wait::Provision), demand.wanted(), check).await;
    if waited.is_err() {
        context.world.read(|state| demand.judges(state))?;
    }
    waited.map(Some)
}

/// What is held, apart from room.
struct Facts {
    born: Option<(usize, usize)>,
    lost: Option<(usize, usize)>,
    object: Option<(Key, Look)>,
    /// Versions of the object that were looked at already.
    looked_at: usize,
}

pub(super) async fn hold(context: &mut Context, step: &Hold) -> Held {
    let demand = match &step.headroom {
        Some(room) => {
            Some(Demand::read(context, &room.buffers, room.namespace.as_deref(), room.at_least).await?)
        }
        None => None,
    };
    let object = match &step.resource {
        Some(resource) => {
            let look = Look::new(&resource.partial, &step.cel)?;
            let key = context.key(&resource.target).await?;
            context.catch_up(&key).await?;
            Some((key, look))
        }
        None => None,
    };
    let count = context.world.read(|state| state.count("Node"));
    let allowed = |more: Option<u32>| more.and_then(|more| usize::try_from(more).ok());
    let mut facts = Facts {
        born: allowed(step.nodes_born).map(|more| (count.born, more)),
        lost: allowed(step.nodes_lost).map(|more| (count.lost, more)),
        looked_at: object.as_ref().map_or(0, |(key, _)| {
            context.world.read(|state| state.tracked(key).map_or(0, |tracked| tracked.versions.len()))
        }),
        object,
    };
    let wanted = describe(step, demand.as_ref(), &facts);

    let check = |state: &State| {
        facts.check(state).map_err(Broken::Certainly)?;
        let enough = demand.as_ref().is_none_or(|demand| demand.check(state).is_ok());
        if enough { Ok(()) } else { Err(Broken::Perhaps) }
    };
    let live = &*context;
    let confirm = || async {
        match &demand {
            Some(demand) => demand.check_live(live).await,
            None => Ok(Ok(())),
        }
    };
    let length = context.patience(step.duration);
    match hold_for::<_, _, Failure>(&context.world, length, check, confirm).await? {
        Ok(elapsed) => {
            context.trust_eyes().await?;
            Ok(Some(elapsed))
        }
        Err(missed) => Err(Failure::Unmet { wanted, missed }),
    }
}

impl Facts {
    fn check(&mut self, state: &State) -> Result<(), Unmet> {
        let count = state.count("Node");
        for (what, allowed, now) in [("born", self.born, count.born), ("lost", self.lost, count.lost)] {
            if let Some((before, more)) = allowed {
                let seen = now.saturating_sub(before);
                if seen > more {
                    return Err(Unmet { seen: format!("{seen} {what}"), diff: Some(story(state, "Node")) });
                }
            }
        }
        let Some((key, look)) = &self.object else {
            return Ok(());
        };
        // versions between two looks count too
        if let Some(tracked) = state.tracked(key) {
            for (_, version) in tracked.versions.iter().skip(self.looked_at) {
                look.check(key, Some(version))?;
            }
            self.looked_at = tracked.versions.len();
        }
        look.check(key, state.object(key).map(Arc::as_ref))
    }
}

fn describe(step: &Hold, demand: Option<&Demand>, facts: &Facts) -> String {
    let parts = [
        demand.map(Demand::wanted),
        step.nodes_born.map(|most| format!("at most {most} nodes born")),
        step.nodes_lost.map(|most| format!("at most {most} nodes lost")),
        facts.object.as_ref().map(|(key, look)| look.wanted(key)),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    format!("all of the time: {}", parts.join(", "))
}
