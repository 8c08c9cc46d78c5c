//! Verbs that write: apply, create, update, patch, scale, delete.

use kube::api::PropagationPolicy;
use serde_json::{Value, json};

use super::Held;
use crate::{
    run::{
        cluster::{delete_params, labelled},
        context::Context,
        outcome::Failure,
        wait::Missed,
        world::Key,
    },
    scenario::{Create, Delete, Isolation, Manifests, Patch, Propagation, Scale, Subresource, Update},
};

pub(super) async fn apply(context: &mut Context, manifests: &Manifests) -> Held {
    for manifest in &manifests.0 {
        let key = context.key(&manifest.target).await?;
        context.apply(&key, manifest.body.clone()).await?;
        context.wrote(&key).await?;
    }
    Ok(None)
}

/// Creates, or sees the server refuse. What a server refuses or accepts is the subject's doing: its CRD is being judged.
pub(super) async fn create(context: &mut Context, create: &Create) -> Held {
    let key = context.key(&create.resource.target).await?;
    let body = labelled(create.resource.body.clone(), &key, &context.scope.run, &context.scope.scenario);
    context.remember(&key);
    let answer = match context.cluster().create(&key, &body).await {
        Ok(()) => None,
        Err(error) => match error.status() {
            // The user may not, the name is taken, too many requests: none of it is about the object.
            Some(401 | 403 | 409 | 429) => return Err(error.into()),
            Some(status @ 400..500) => Some((status, error.detail())),
            _ => return Err(error.into()),
        },
    };
    let expected = create.rejected.as_ref().map(|rejected| rejected.status);
    let optional = create.rejected.as_ref().is_some_and(|rejected| rejected.optional);
    match (expected, answer) {
        (None, None) => Ok(None),
        (Some(_), None) if optional => Ok(None),
        (Some(expected), Some((status, _))) if status == expected => {
            context.settled = optional;
            Ok(None)
        }
        (expected, answer) => {
            let wanted = expected.map_or_else(
                || format!("{key} is accepted"),
                |status| {
                    let or = if optional { ", or accepted" } else { "" };
                    format!("{key} is refused with status {status}{or}")
                },
            );
            let seen = answer.map_or_else(|| "it was accepted".to_owned(), |(_, detail)| detail);
            Err(Failure::Unmet { wanted, missed: Missed::at_once(seen) })
        }
    }
}

pub(super) async fn update(context: &mut Context, update: &Update) -> Held {
    let key = context.key(&update.target()).await?;
    context.cluster().merge(&key, &Value::Object(update.merge.clone())).await?;
    context.wrote(&key).await?;
    Ok(None)
}

pub(super) async fn patch(context: &mut Context, patch: &Patch) -> Held {
    let key = context.key(&patch.target()).await?;
    let subresource = patch.subresource.map(|Subresource::Status| "status");
    context.cluster().json_patch(&key, subresource, json!(patch.json)).await?;
    context.wrote(&key).await?;
    Ok(None)
}

pub(super) async fn scale(context: &mut Context, scale: &Scale) -> Held {
    let key = context.key(&scale.target()).await?;
    context.cluster().scale(&key, scale.replicas).await?;
    context.wrote(&key).await?;
    Ok(None)
}

pub(super) async fn delete(context: &mut Context, delete: &Delete) -> Held {
    let key = context.key(&delete.target()).await?;
    check_ours(context, &key).await?;
    let propagation = match delete.propagation {
        Propagation::Background => PropagationPolicy::Background,
        Propagation::Foreground => PropagationPolicy::Foreground,
        Propagation::Orphan => PropagationPolicy::Orphan,
    };
    let mut params = delete_params(propagation);
    params.grace_period_seconds = delete.grace_period_seconds;
    if context.cluster().delete(&key, &params).await? {
        context.wrote(&key).await?;
        Ok(None)
    } else {
        Err(Failure::Broken(format!("{key} is not there")))
    }
}

/// Nothing is deleted that does not carry the run's label, nodes and claims of the scenario's pool excepted.
async fn check_ours(context: &Context, key: &Key) -> Result<(), Failure> {
    let object = context.cluster().get(key).await?;
    let object = object.ok_or_else(|| Failure::Broken(format!("{key} is not there")))?;
    let of_plane = matches!(key.kind.as_str(), "Node" | "NodeClaim") && context.scope.pool.is_none();
    let ours = context.scope.contains(key, &object) && (!of_plane || context.isolation == Isolation::Own);
    if ours { Ok(()) } else { Err(Failure::Broken(format!("{key} is not the scenario's to delete"))) }
}
