//! `assert` and `absent`, and what a held object must look like.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value};
use tokio::time::Instant;

use super::Held;
use crate::{
    run::{
        context::Context,
        expression::{Expression, NotCel},
        matcher::{Mismatch, diff, mismatches, shown},
        outcome::Failure,
        wait::Unmet,
        world::{Key, State},
    },
    scenario::{Absent, Assert},
    waits::Wait,
};

/// What an object must look like.
pub(super) struct Look {
    partial: Value,
    expressions: Vec<Expression>,
    /// The object as it was, for the expressions.
    before: Option<Arc<Value>>,
}

impl From<NotCel> for Failure {
    fn from(error: NotCel) -> Self {
        Self::Broken(error.to_string())
    }
}

impl Look {
    pub(super) fn new(partial: &Map<String, Value>, cel: &[String]) -> Result<Self, NotCel> {
        let expressions = cel.iter().map(|text| Expression::compile(text)).collect::<Result<_, _>>()?;
        Ok(Self { partial: Value::Object(partial.clone()), expressions, before: None })
    }

    /// One line.
    pub(super) fn wanted(&self, key: &Key) -> String {
        let partial = (self.partial != Value::Object(Map::new())).then(|| self.partial.to_string());
        let all: Vec<_> =
            partial.into_iter().chain(self.expressions.iter().map(|one| one.text().to_owned())).collect();
        if all.is_empty() { format!("{key} is there") } else { format!("{key} with {}", all.join(" and ")) }
    }

    pub(super) fn check(&self, key: &Key, object: Option<&Value>) -> Result<(), Unmet> {
        let Some(object) = object else {
            return Err(Unmet::new(format!("{key} is not there")));
        };
        let mut differences: Vec<Mismatch> = mismatches(&self.partial, object);
        for expression in &self.expressions {
            if let Err(instead) = expression.holds(object, self.before.as_deref()) {
                let path = format!("cel({})", expression.text());
                differences.push(Mismatch {
                    path,
                    wanted: Some(Value::Bool(true)),
                    seen: Some(instead.into()),
                });
            }
        }
        if differences.is_empty() {
            return Ok(());
        }
        let seen = match &self.partial {
            // of expressions alone nobody knows what they look at
            Value::Object(partial) if partial.is_empty() => shown(&Value::Null, &object["status"]),
            partial => shown(partial, object),
        };
        Err(Unmet { seen: seen.to_string(), diff: Some(diff(&differences)) })
    }
}

pub(super) async fn assert(context: &mut Context, step: &Assert, within: Option<Wait>) -> Held {
    let mut look = Look::new(&step.resource.partial, &step.cel)?;
    let key = context.key(&step.resource.target).await?;
    let moment = |mark: &Option<String>| match mark {
        None => Ok(None),
        Some(mark) => {
            let moment = context.marks.get(mark).copied();
            moment.map(Some).ok_or_else(|| Failure::Broken(format!("there is no mark `{mark}`")))
        }
    };
    let (since, before) = (moment(&step.since)?, moment(&step.before)?);
    context.cover(&key).await?;
    if let Some(before) = before {
        let version = context.world.read(|state| version_at(state, &key, before));
        let none = || Failure::Broken(format!("{key} was not there at the mark"));
        look.before = Some(version.ok_or_else(none)?);
    }
    let mut met_at = None;
    let waited = context
        .wait(within.unwrap_or(Wait::Observe), look.wanted(&key), |state| {
            met_at = since.and_then(|mark| version_since(state, &key, mark, &look));
            if met_at.is_some() {
                return Ok(());
            }
            look.check(&key, state.object(&key).map(|object| &**object))
        })
        .await?;
    // looking back, the time runs from the mark
    let elapsed: Duration = match (since, met_at) {
        (Some(mark), Some(at)) => at.saturating_duration_since(mark),
        (Some(mark), None) => mark.elapsed(),
        (None, _) => waited,
    };
    Ok(Some(elapsed))
}

/// The version of the object that was in force at a moment.
fn version_at(state: &State, key: &Key, moment: Instant) -> Option<Arc<Value>> {
    let versions = &state.tracked(key)?.versions;
    let later = versions.partition_point(|(at, _)| *at <= moment);
    versions.get(later.checked_sub(1)?).map(|(_, object)| Arc::clone(object))
}

/// When the object first looked like that at or after a moment; the version that was in force at the moment counts.
fn version_since(state: &State, key: &Key, mark: Instant, look: &Look) -> Option<Instant> {
    let versions = &state.tracked(key)?.versions;
    let first = versions.partition_point(|(at, _)| *at <= mark).saturating_sub(1);
    let later = versions.iter().skip(first);
    later
        .map(|(at, object)| ((*at).max(mark), object))
        .find_map(|(at, object)| look.check(key, Some(object)).is_ok().then_some(at))
}

pub(super) async fn absent(context: &mut Context, step: &Absent, within: Option<Wait>) -> Held {
    let key = context.key(&step.resource).await?;
    context.cover(&key).await?;
    let elapsed = context
        .wait(within.unwrap_or(Wait::Observe), format!("{key} is not there"), |state| {
            match state.object(&key) {
                None => Ok(()),
                Some(object) => {
                    let metadata = &object["metadata"];
                    let held = &metadata["finalizers"];
                    let leaving =
                        if metadata["deletionTimestamp"].is_null() { "there" } else { "being deleted" };
                    let finalizers =
                        if held.is_null() { String::new() } else { format!(", with finalizers {held}") };
                    Err(Unmet::new(format!("{key} is {leaving}{finalizers}")))
                }
            }
        })
        .await?;
    Ok(Some(elapsed))
}
