//! Buys an instance for each claim, and takes it away again.

use std::{sync::Arc, time::Duration};

use buffer_api::{
    FakeNodeClass, NodeClaim,
    conditions::claim::{LAUNCHED, LAUNCHING, NODE_CLASS_NOT_FOUND, NODE_CLASS_NOT_READY},
    labels::INSTANCE_FINALIZER,
};
use jiff::Timestamp;
use kube::{
    Api,
    api::{Patch, PatchParams},
    runtime::{controller::Action, reflector::ObjectRef},
};
use serde_json::{Value, json};
use tracing::{debug, info};

use super::{MANAGER, World, classes, is_ours, kind, lock, machine, patched};
use crate::{
    claim::{self, Delays, Facts, Launched, Step},
    error::{Error, doing, is_gone, is_stale},
    launch::{self, Attempt, Instance, Outcome},
    rules::{Labels, Phase, Rules},
};

/// The longest wait between two attempts to buy.
const LONGEST_BACK_OFF: Duration = Duration::from_mins(1);

/// Looks at a claim.
pub(super) async fn look(claim: Arc<NodeClaim>, world: Arc<World>) -> Result<Action, Error> {
    if !is_ours(&claim) {
        return Ok(Action::await_change());
    }
    let mut claim = world.own_claims.newest(claim);
    loop {
        let next = match decide(&world, &claim) {
            Step::Rest => return Ok(Action::await_change()),
            Step::Wait(wait) => return Ok(Action::requeue(wait)),
            Step::Launch { at_once } => match launch(&world, &claim, at_once).await? {
                Launch::Written(claim) => Some(claim),
                Launch::Again(wait) => return Ok(Action::requeue(wait)),
                Launch::Waiting => return Ok(Action::await_change()),
            },
            Step::Confirm => {
                let provider_id = world.identity.provider_id(claim::uid(&claim));
                let instance = claim::instance(&claim);
                let told = instance.as_ref().map(|instance| (provider_id.as_str(), instance));
                let status = claim::status(&claim, told, RUNNING, Timestamp::now());
                write(&world, &claim, status).await?
            }
            Step::Settle { label, birth } => {
                settle(&world, &claim, label, birth).await?;
                return Ok(Action::await_change());
            }
            Step::Stop => {
                if !machine::stop(&world, &claim).await? {
                    return Ok(Action::await_change());
                }
                // the watch will show it; the claim goes no sooner
                if world.nodes.get(&ObjectRef::new(claim::name(&claim))).is_some() {
                    return Ok(Action::await_change());
                }
                Some(claim)
            }
            Step::Release => {
                release(&world, &claim).await?;
                return Ok(Action::await_change());
            }
        };
        match next {
            Some(next) => claim = next,
            None => return Ok(Action::await_change()),
        }
    }
}

/// `Launched=True`.
const RUNNING: Launched = Launched { status: "True", reason: LAUNCHED, message: "" };

fn decide(world: &World, claim: &NodeClaim) -> Step {
    let now = Timestamp::now();
    let name = claim::name(claim);
    let rules = world.rules_of(claim);
    let fate = world.fate_of(claim, &rules);
    let node = world.nodes.get(&ObjectRef::new(name));
    let node = node.as_deref().filter(|node| world.claim_uid_of(node) == Some(claim::uid(claim)));
    let running = claim::condition(claim, LAUNCHED).is_some_and(|c| c.status == "True");
    let ordered = claim.metadata.deletion_timestamp.is_some()
        && !claim::has_finalizer(claim, buffer_api::labels::TERMINATION_FINALIZER);
    let instance = {
        let mut fleet = lock(&world.fleet);
        let instance = fleet.instance(claim::uid(claim), now);
        instance.born |= node.is_some();
        if running {
            instance.marks.running.get_or_insert(now);
        }
        if ordered {
            instance.marks.ordered.get_or_insert(now);
        }
        *instance
    };
    claim::decide(&Facts {
        claim,
        provider_id: &world.identity.provider_id(claim::uid(claim)),
        node,
        born: instance.born,
        // a container may be there, whatever this process knows of it
        unseen: instance.unseen || (!instance.away && kind::is_kind(world, claim)),
        marks: instance.marks,
        retry: instance.retry,
        delays: Delays {
            launch: rules.delay(Phase::Launch, name, fate),
            register: (!fate.never_register).then(|| rules.delay(Phase::Register, name, fate)),
            terminate: rules.delay(Phase::Terminate, name, fate),
        },
        now,
    })
}

/// What came of a launch.
enum Launch {
    /// The claim says so now.
    Written(Arc<NodeClaim>),
    /// It is worth another try after this time.
    Again(Duration),
    /// Something else has to change first.
    Waiting,
}

/// Tries to buy an instance. What the class has to say is written first, then the claim.
async fn launch(world: &World, claim: &Arc<NodeClaim>, at_once: bool) -> Result<Launch, Error> {
    let (uid, class_name) = (claim::uid(claim), &claim.spec.node_class_ref.name);
    let Some(class) = world.class_of(claim) else {
        let message = format!("there is no FakeNodeClass \"{class_name}\"");
        let unknown = Launched { status: "Unknown", reason: NODE_CLASS_NOT_FOUND, message: &message };
        write(world, claim, claim::status(claim, None, unknown, Timestamp::now())).await?;
        return Ok(Launch::Waiting);
    };
    if !classes::is_ready(&class) {
        // one that has just been made or changed is about to be looked at
        if classes::is_refused(&class) {
            let message = format!("the FakeNodeClass \"{class_name}\" is not Ready");
            let unknown = Launched { status: "Unknown", reason: NODE_CLASS_NOT_READY, message: &message };
            write(world, claim, claim::status(claim, None, unknown, Timestamp::now())).await?;
        }
        return Ok(Launch::Waiting);
    }

    let owned = lock(&world.fleet).reserve(class_name, uid);
    let outcome = buy(world, claim, class, owned).await;
    if !matches!(outcome, Ok(Some(Outcome::Bought(_)))) {
        lock(&world.fleet).unreserve(class_name, uid);
    }
    let Some(outcome) = outcome? else { return Ok(Launch::Again(Duration::from_millis(100))) };
    let now = Timestamp::now();
    match &outcome {
        Outcome::Bought(instance) => {
            let provider_id = world.identity.provider_id(uid);
            let launching =
                Launched { status: "Unknown", reason: LAUNCHING, message: "the instance is starting" };
            let launched = if at_once { RUNNING } else { launching };
            let status = claim::status(claim, Some((&provider_id, instance)), launched, now);
            Ok(match write(world, claim, status).await? {
                Some(claim) => {
                    announce(&claim, instance);
                    Launch::Written(claim)
                }
                None => Launch::Waiting,
            })
        }
        Outcome::Retry { reason, message } => {
            let unknown = Launched { status: "Unknown", reason, message };
            write(world, claim, claim::status(claim, None, unknown, now)).await?;
            let mut fleet = lock(&world.fleet);
            let attempts = &mut fleet.instance(uid, now).attempts;
            let wait = Duration::from_secs(1 << (*attempts).min(6)).min(LONGEST_BACK_OFF);
            *attempts += 1;
            Ok(Launch::Again(wait))
        }
        Outcome::Refused { message } => {
            let reason = outcome.reason().unwrap_or_default();
            info!(claim = claim::name(claim), message, "refused");
            let refused = Launched { status: "False", reason, message };
            write(world, claim, claim::status(claim, None, refused, now)).await?;
            Ok(Launch::Waiting)
        }
    }
}

fn announce(claim: &NodeClaim, instance: &Instance) {
    let label = |key: &str| instance.labels.get(key).map(String::as_str);
    info!(
        claim = claim::name(claim),
        r#type = label(buffer_api::labels::INSTANCE_TYPE),
        zone = label(buffer_api::labels::ZONE),
        capacity_type = label(buffer_api::labels::CAPACITY_TYPE),
        "bought"
    );
}

/// One attempt; `None` if the class has changed meanwhile.
async fn buy(
    world: &World,
    claim: &NodeClaim,
    class: Arc<FakeNodeClass>,
    owned: usize,
) -> Result<Option<Outcome>, Error> {
    let now = Timestamp::now();
    let attempts = lock(&world.fleet).instance(claim::uid(claim), now).attempts;
    let attempt = |class: &FakeNodeClass| {
        // a class whose rules make no sense is not Ready
        let rules = Rules::parse(&class.spec).unwrap_or_default();
        launch::attempt(claim, class, &rules, owned, attempts, now)
    };
    if class.spec.faults.is_empty() {
        return Ok(Some(attempt(&class)?.outcome));
    }
    // what one purchase finds out, the next one has to know
    let _alone = world.publishing.lock().await;
    let class = world.class_of(claim).unwrap_or(class);
    let Attempt { outcome, lacking, struck } = attempt(&class)?;
    if lacking.is_empty() && struck.is_none() {
        return Ok(Some(outcome));
    }
    let mut status = class.status.clone().unwrap_or_default();
    status.unavailable = launch::merge(&status.unavailable, &lacking);
    if let Some(struck) = struck {
        status.struck = struck;
    }
    Ok(classes::publish(world, &class, &status, now).await?.map(|_| outcome))
}

/// Writes what the cloud owns of the claim's status. `None` if there is nothing to write, or if the claim has changed
/// meanwhile: the watch will show how.
pub(super) async fn write(
    world: &World,
    claim: &NodeClaim,
    status: Option<Value>,
) -> Result<Option<Arc<NodeClaim>>, Error> {
    let Some(status) = status else { return Ok(None) };
    let claims: Api<NodeClaim> = Api::all(world.client.clone());
    let params = PatchParams::apply(MANAGER).force();
    match claims.patch_status(claim::name(claim), &params, &Patch::Apply(status)).await {
        Ok(written) => Ok(Some(world.own_claims.put(written))),
        Err(error) if is_gone(&error) || is_stale(&error) => {
            debug!(claim = claim::name(claim), "the claim has changed meanwhile");
            Ok(None)
        }
        Err(error) => Err(doing("writing the status of a claim")(error)),
    }
}

/// Gives the claim the labels that it lacks, and brings its Node.
async fn settle(world: &World, claim: &NodeClaim, label: Labels, birth: bool) -> Result<(), Error> {
    let labels = async {
        if label.is_empty() {
            return Ok(());
        }
        let patch = json!({"metadata": {"uid": claim.metadata.uid, "labels": label}});
        let claims: Api<NodeClaim> = Api::all(world.client.clone());
        match claims.patch(claim::name(claim), &patched(), &Patch::Merge(patch)).await {
            Ok(claim) => {
                world.own_claims.put(claim);
                Ok(())
            }
            Err(error) if is_gone(&error) || is_stale(&error) => Ok(()),
            Err(error) => Err(doing("labelling a claim")(error)),
        }
    };
    let node = async {
        if !birth {
            return Ok(());
        }
        let rules = world.rules_of(claim);
        let fate = world.fate_of(claim, &rules);
        let ready = !fate.never_ready && rules.delay(Phase::Ready, claim::name(claim), fate).is_zero();
        machine::start(world, claim, ready).await
    };
    tokio::try_join!(labels, node).map(drop)
}

/// Lets the claim go.
async fn release(world: &World, claim: &NodeClaim) -> Result<(), Error> {
    let finalizers = claim.metadata.finalizers.iter().flatten();
    let rest: Vec<&String> = finalizers.filter(|f| *f != INSTANCE_FINALIZER).collect();
    let patch = json!({
        "metadata": {"resourceVersion": claim.metadata.resource_version, "finalizers": rest},
    });
    let claims: Api<NodeClaim> = Api::all(world.client.clone());
    match claims.patch(claim::name(claim), &patched(), &Patch::Merge(patch)).await {
        Ok(released) => {
            info!(claim = claim::name(claim), "released");
            world.own_claims.put(released);
            Ok(())
        }
        // stale: the watch will show how the claim has changed
        Err(error) if is_gone(&error) || is_stale(&error) => Ok(()),
        Err(error) => Err(doing("releasing a claim")(error)),
    }
}
