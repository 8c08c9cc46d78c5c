//! Runs the pods on the nodes whose kubelet is up.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, Preconditions},
    runtime::{controller::Action, reflector::ObjectRef},
};
use serde_json::Value;

use super::{World, lock, patched};
use crate::{
    error::{Error, doing, is_gone, is_stale},
    pod::state::{Place, Step, decide},
};

/// Looks at a pod.
pub(super) async fn look(pod: Arc<Pod>, world: Arc<World>) -> Result<Action, Error> {
    let Some(node_name) = pod.spec.as_ref().and_then(|s| s.node_name.clone()) else {
        return Ok(Action::await_change());
    };
    let mut pod = world.own_pods.newest(pod);
    let namespace = pod.namespace().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), &namespace);
    loop {
        let Some(node) = world.nodes.get(&ObjectRef::new(&node_name)) else {
            return Ok(Action::await_change());
        };
        let mut step = next(&world, &pod, &node)?;
        if let Step::Reject(_) = step {
            // the watch of nodes may be behind that of pods: what the scheduler saw is not yet seen here
            let nodes: Api<Node> = Api::all(world.client.clone());
            let Some(node) = nodes.get_opt(&node_name).await.map_err(doing("reading a node"))? else {
                return Ok(Action::await_change());
            };
            step = next(&world, &pod, &node)?;
        }
        let patch = match step {
            Step::Rest => return Ok(Action::await_change()),
            Step::Wait(wait) => return Ok(Action::requeue(wait)),
            Step::Start(_, patch) | Step::Reject(patch) | Step::Patch(patch) => patch,
            Step::Remove => {
                remove(&pods, &pod).await?;
                return Ok(Action::await_change());
            }
        };
        let before = pod.resource_version();
        match write(&pods, &pod.name_any(), patch).await? {
            Some(written) => pod = world.own_pods.put(written),
            None => return Ok(Action::await_change()),
        }
        if pod.resource_version() == before {
            // the server keeps nothing of the patch, so that asking again would never end
            return Ok(Action::await_change());
        }
    }
}

/// What has to be done next. A pod that the node takes is counted from here on, before others are looked at.
fn next(world: &World, pod: &Pod, node: &Node) -> Result<Step, Error> {
    let name = node.name_any();
    let kubelet = lock(&world.fleet).kubelets.get(&name).copied();
    let Some(kubelet) = kubelet.filter(|kubelet| kubelet.running) else { return Ok(Step::Rest) };
    let uid = pod.uid().unwrap_or_default();
    let mut ledger = lock(&world.ledger);
    if !ledger.knows(&uid) {
        return Ok(Step::Rest);
    }
    let pod_ip =
        ledger.address(&uid).ok_or_else(|| Error::Addresses(format!("the pod {}", pod.name_any())))?;
    let others = ledger.others(&name, &uid);
    let place = Place { node, others: &others, host_ip: kubelet.ip, pod_ip };
    let step = decide(pod, place, Timestamp::now());
    if let Step::Start(held, _) = &step {
        ledger.hold(&uid, held.clone());
    }
    Ok(step)
}

/// Patches the status; `None` if the pod is gone, or is another one of its name.
async fn write(pods: &Api<Pod>, name: &str, patch: Value) -> Result<Option<Pod>, Error> {
    match pods.patch_status(name, &patched(), &Patch::Strategic(patch)).await {
        Ok(pod) => Ok(Some(pod)),
        Err(error) if is_gone(&error) || is_stale(&error) => Ok(None),
        Err(error) => Err(doing("writing the status of a pod")(error)),
    }
}

/// Removes the object of a pod whose containers have ended.
async fn remove(pods: &Api<Pod>, pod: &Pod) -> Result<(), Error> {
    let this = Preconditions { uid: pod.uid(), ..Preconditions::default() };
    let now = DeleteParams::default().grace_period(0).preconditions(this);
    match pods.delete(&pod.name_any(), &now).await {
        Ok(_) => Ok(()),
        Err(error) if is_gone(&error) || is_stale(&error) => Ok(()),
        Err(error) => Err(doing("removing a pod")(error)),
    }
}
