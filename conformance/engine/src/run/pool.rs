//! Pools: a scenario's own set of nodes.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::Notify;

use super::{context::Context, outcome::Failure};
use crate::{
    implementation::{Pool, Shape, Supply},
    scenario::{Manifest, Vars, substitute},
};

/// A pool that a scenario has to itself.
#[derive(Debug)]
pub struct Acquired {
    /// Its name: value of the label and taint of its nodes.
    pub name: String,
    /// Size of its nodes.
    pub shape: Shape,
    /// It was there before and stays; given back when this goes.
    pub slot: Option<Taken>,
}

/// Pre-made pools in use, of all scenarios of a run.
#[derive(Clone, Debug, Default)]
pub struct Slots(Arc<InUse>);

#[derive(Debug, Default)]
struct InUse {
    names: Mutex<BTreeSet<String>>,
    freed: Notify,
}

/// A pre-made pool in use.
#[derive(Debug)]
pub struct Taken {
    slots: Slots,
    name: String,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.slots.0.names.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
        self.slots.0.freed.notify_waiters();
    }
}

impl Slots {
    /// Takes the first that is free, and waits for one if none is.
    async fn take<'a>(&self, names: impl Iterator<Item = &'a str> + Clone) -> Taken {
        loop {
            let freed = self.0.freed.notified();
            tokio::pin!(freed);
            // from here on no release is missed
            freed.as_mut().enable();
            if let Some(name) = self.first_free(names.clone()) {
                return Taken { slots: self.clone(), name };
            }
            freed.await;
        }
    }

    fn first_free<'a>(&self, mut names: impl Iterator<Item = &'a str>) -> Option<String> {
        let mut used = self.0.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.find(|name| used.insert((*name).to_owned())).map(str::to_owned)
    }
}

/// Takes a slot of a pool, or the name of one that is yet to be created.
pub async fn acquire(pool: &Pool, slots: &Slots, new_name: &str) -> Acquired {
    let slot = match &pool.supply {
        Supply::Create(_) => None,
        Supply::Slots(all) => Some(slots.take(all.iter().map(|slot| slot.name.as_str())).await),
    };
    let name = slot.as_ref().map_or(new_name, |slot| &slot.name).to_owned();
    Acquired { name, shape: pool.shape, slot }
}

/// Applies the manifests of a pool that is created. When its nodes can be used is the subject's business.
pub async fn create(context: &Context, pool: &Pool, name: &str) -> Result<(), Failure> {
    let Supply::Create(manifests) = &pool.supply else {
        return Ok(());
    };
    let vars = Vars::for_pool(&context.scope.run, name);
    let broken = |error: &dyn std::fmt::Display| Failure::Broken(format!("a manifest of the pool: {error}"));
    for manifest in manifests {
        let body = substitute(manifest, &vars).map_err(|error| broken(&error))?;
        let manifest: Manifest = serde_json::from_value(body).map_err(|error| broken(&error))?;
        let key = context.key(&manifest.target).await?;
        context.apply(&key, manifest.body).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;
    use tokio::time::timeout;

    const PATIENCE: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn a_slot_belongs_to_one_scenario_at_a_time() {
        let shape = json!({"cpu": "2", "memory": "4Gi", "pods": 10});
        let pool = json!({"shape": shape, "maxNodes": 2, "slots": [{"name": "s"}]});
        let pool: Pool = serde_json::from_value(pool).unwrap();
        let slots = Slots::default();
        let first = acquire(&pool, &slots, "new").await;
        assert_eq!(first.name, "s");
        let second = acquire(&pool, &slots, "new");
        tokio::pin!(second);
        assert!(timeout(PATIENCE, second.as_mut()).await.is_err());
        drop(first);
        let second = timeout(PATIENCE, second).await;
        assert_eq!(second.map(|second| second.name), Ok("s".to_owned()));
    }
}
