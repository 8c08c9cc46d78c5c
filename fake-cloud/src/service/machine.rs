//! What stands behind a node. The backend of the class decides; claims know only of these two functions.

use std::net::Ipv4Addr;

use buffer_api::{NodeClaim, fake_node_class::Backend};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams, Preconditions},
    runtime::reflector::ObjectRef,
};

use super::{World, fleet, heart, kind, lock};
use crate::{
    claim,
    error::{Error, doing, is_gone, is_stale},
};

/// Why a backend can't be used here, if it can't.
pub(super) async fn unavailable(world: &World, backend: Backend) -> Option<String> {
    match backend {
        Backend::Hollow => None,
        Backend::Kind => kind::unavailable(world).await,
    }
}

/// Brings the Node of an instance that runs. `ready` says that it is Ready from the start.
pub(super) async fn start(world: &World, claim: &NodeClaim, ready: bool) -> Result<(), Error> {
    if kind::is_kind(world, claim) {
        return kind::start(world, claim).await;
    }
    let (name, uid) = (claim::name(claim), claim::uid(claim));
    let now = Timestamp::now();
    let ip: Option<Ipv4Addr> = lock(&world.fleet).addresses.assign(uid);
    let ip = ip.ok_or_else(|| Error::Addresses(format!("the node {name}")))?;
    let node = world.kubelet.birth(claim, ip, ready, now);
    // before the request, for its answer may be lost
    mark(world, uid, |instance| instance.unseen = true);
    let nodes: Api<Node> = Api::all(world.client.clone());
    match nodes.create(&PostParams::default(), &node).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let there = nodes.get_opt(name).await.map_err(doing("reading a node"))?;
            if there.is_some_and(|node| world.claim_uid_of(&node) != Some(uid)) {
                mark(world, uid, |instance| instance.unseen = false);
                return Err(Error::ForeignNode(name.to_owned()));
            }
        }
        Err(error) => return Err(doing("creating a node")(error)),
    }
    // the watch may have shown it, and even its end, before this
    let seen = world.nodes.get(&ObjectRef::new(name)).is_some();
    mark(world, uid, |instance| {
        instance.unseen &= !(seen || instance.born);
        instance.born = true;
    });
    Ok(())
}

/// Takes an instance away: its kubelet falls silent (a container is removed), then its Node is deleted. Answers whether the Node is gone.
pub(super) async fn stop(world: &World, claim: &NodeClaim) -> Result<bool, Error> {
    let (name, uid) = (claim::name(claim), claim::uid(claim));
    if kind::is_kind(world, claim) {
        kind::stop(world, claim).await?;
    }
    {
        let mut fleet = lock(&world.fleet);
        fleet.instance(uid, Timestamp::now()).away = true;
        fleet.kubelets.remove(name);
    }
    heart::stop(&world.heart, name);
    let nodes: Api<Node> = Api::all(world.client.clone());
    let node = match world.nodes.get(&ObjectRef::new(name)) {
        Some(node) => Some(node.as_ref().clone()),
        None => nodes.get_opt(name).await.map_err(doing("reading a node"))?,
    };
    if let Some(node) = node.filter(|node| world.claim_uid_of(node) == Some(uid)) {
        delete(world, &node).await
    } else {
        mark(world, uid, |instance| instance.unseen = false);
        Ok(true)
    }
}

/// Deletes a Node, this one and no other of its name. Answers whether it is gone.
pub(super) async fn delete(world: &World, node: &Node) -> Result<bool, Error> {
    let nodes: Api<Node> = Api::all(world.client.clone());
    let this = Preconditions { uid: node.uid(), ..Preconditions::default() };
    match nodes.delete(&node.name_any(), &DeleteParams::default().preconditions(this)).await {
        // the answer is the Node where finalizers keep it
        Ok(answer) => Ok(answer.is_right()),
        Err(error) if is_gone(&error) || is_stale(&error) => Ok(true),
        Err(error) => Err(doing("deleting a node")(error)),
    }
}

fn mark(world: &World, uid: &str, change: impl FnOnce(&mut fleet::Instance)) {
    change(lock(&world.fleet).instance(uid, Timestamp::now()));
}
