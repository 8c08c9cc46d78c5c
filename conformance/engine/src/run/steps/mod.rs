//! One small function a verb. Each gives how long it waited, if it did.

mod assert;
mod capacity;
mod count;
mod objects;
mod probe;
mod timing;

use std::time::Duration;

use super::{context::Context, outcome::Failure};
use crate::scenario::Step;

/// What a step gives: how long it waited, if waiting is what it does.
pub type Held = Result<Option<Duration>, Failure>;

/// Runs one step.
pub async fn run(context: &mut Context, step: &Step) -> Held {
    // the verb's default is in it
    let within = step.judge().within;
    match step {
        Step::Apply(manifests) => objects::apply(context, manifests).await,
        Step::Create(create) => objects::create(context, create).await,
        Step::Update(update) => objects::update(context, update).await,
        Step::Patch(patch) => objects::patch(context, patch).await,
        Step::Scale(scale) => objects::scale(context, scale).await,
        Step::Delete(delete) => objects::delete(context, delete).await,
        Step::Assert(assert) => assert::assert(context, assert, within).await,
        Step::Absent(absent) => assert::absent(context, absent, within).await,
        Step::Headroom(headroom) => capacity::headroom(context, headroom, within).await,
        Step::Probe(probe) => probe::probe(context, probe, within).await,
        Step::Hold(hold) => capacity::hold(context, hold).await,
        Step::Nodes(count) => count::lives(context, "Node", count, within).await,
        Step::Claims(count) => count::lives(context, "NodeClaim", count, within).await,
        Step::Event(event) => count::event(context, event, within).await,
        Step::Pods(pods) => count::pods(context, pods, within).await,
        Step::Offset(offset) => timing::offset(context, offset).await,
        Step::Trigger(trigger) => timing::trigger(context, trigger).await,
        Step::Mark(name) => {
            timing::mark(context, name);
            Ok(None)
        }
    }
}
