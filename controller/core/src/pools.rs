//! NodePools: whether they can be bought from, and what they have.
//!
//! Source: reference A17 (conditions `ValidationSucceeded`, `NodeClassReady`, `Ready`; `status.resources` with `nodes`).

use buffer_api::{
    NodePoolStatus, Quantity,
    conditions::pool as text,
    karpenter::{Operator, Requirement},
    labels,
};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::{
    amounts,
    conditions::{Wanted, same},
    demand::hash,
    disrupt::budget,
    duration,
    index::Index,
    lifecycle::Leaving,
    plan::{Draft, PoolStatus},
    snapshot::{NodeClass, Pool, Resources},
};

/// While a pool has claims younger than this, its resources are not written: they are about to change.
const SETTLING: SignedDuration = SignedDuration::from_secs(5);

const OURS: [&str; 3] = [text::NODE_CLASS_READY, text::READY, text::VALIDATION_SUCCEEDED];

/// Whether a pool can be bought from.
#[derive(Clone, Debug)]
pub struct Health {
    /// Claims may be made of it.
    pub usable: bool,
    conditions: [Wanted; 3],
}

/// Judges a pool and its node class.
#[must_use]
pub fn health(pool: &Pool, class: Option<&NodeClass>) -> Health {
    let reference = &pool.spec.template.spec.node_class_ref;
    let wanted = |kind: &'static str, problem: Option<(&'static str, String)>| match problem {
        None => Wanted { kind, status: "True", reason: kind, message: String::new() },
        Some((reason, message)) => Wanted { kind, status: "False", reason, message },
    };
    let class_problem = match class {
        None => Some((
            text::NODE_CLASS_NOT_FOUND,
            format!("{}.{} \"{}\" not found", reference.kind, reference.group, reference.name),
        )),
        Some(class) if class.deleting => {
            Some(("NodeClassTerminating", format!("{} \"{}\" is being deleted", class.kind, class.name)))
        }
        Some(class) if !class.ready => {
            Some(("NodeClassNotReady", format!("{} \"{}\" is not ready", class.kind, class.name)))
        }
        Some(_) => None,
    };
    let invalid = validate(pool).err().map(|message| ("NodePoolValidationFailed", message));
    let ready = wanted(text::READY, invalid.clone().or_else(|| class_problem.clone()));
    Health {
        usable: ready.status == "True" && !pool.deleting,
        conditions: [
            wanted(text::VALIDATION_SUCCEEDED, invalid),
            wanted(text::NODE_CLASS_READY, class_problem),
            ready,
        ],
    }
}

fn validate(pool: &Pool) -> Result<(), String> {
    let spec = &pool.spec;
    for requirement in &spec.template.spec.requirements {
        validate_requirement(requirement)?;
    }
    amounts::parse(&spec.limits).map_err(|error| format!("limits: {error}"))?;
    let template = &spec.template.spec;
    let spans = [
        ("consolidateAfter", Some(&spec.disruption.consolidate_after)),
        ("expireAfter", template.expire_after.as_ref()),
        ("terminationGracePeriod", template.termination_grace_period.as_ref()),
    ];
    for (field, span) in spans {
        span.map_or(Ok(duration::Span::Never), |span| duration::parse(span))
            .map_err(|error| format!("{field}: {error}"))?;
    }
    for own in &spec.disruption.budgets {
        budget::validate(own).map_err(|error| format!("budgets: {error}"))?;
    }
    Ok(())
}

fn validate_requirement(requirement: &Requirement) -> Result<(), String> {
    let key = &requirement.key;
    if key == labels::NODEPOOL || key == labels::HOSTNAME {
        return Err(format!("requirements: label {key} is restricted"));
    }
    let count = requirement.values.len();
    let makes_sense = match requirement.operator {
        Operator::In => count > 0,
        Operator::NotIn => true,
        Operator::Exists | Operator::DoesNotExist => count == 0,
        Operator::Gt | Operator::Lt => {
            count == 1 && requirement.values.iter().all(|value| value.parse::<i64>().is_ok())
        }
    };
    if makes_sense {
        Ok(())
    } else {
        Err(format!(
            "requirements: {key} {:?} does not go with {:?}",
            requirement.operator, requirement.values
        ))
    }
}

/// Writes the status of each pool that says something else now.
pub(crate) fn report(index: &Index<'_>, leaving: &Leaving, draft: &mut Draft) {
    for (at, view) in index.pools.iter().enumerate() {
        let stored = &view.pool.status;
        let conditions: Vec<Condition> = view
            .health
            .conditions
            .iter()
            .map(|wanted| wanted.clone().over(&stored.conditions, Some(view.pool.generation), index.now))
            .collect();
        let settles = settles(index, at);
        let resources = match settles {
            Some(_) if !stored.resources.is_empty() => stored.resources.clone(),
            _ => amounts::to_api(&resources(index, at, leaving)),
        };
        if let Some(time) = settles {
            draft.wake(time);
        }
        if resources != stored.resources || !same(&stored.conditions, &conditions, &OURS) {
            let status = NodePoolStatus { resources, conditions };
            draft.plan.pools.push(PoolStatus { name: view.pool.name.clone(), status });
        }
    }
}

/// When the youngest claim of a pool is old enough, if it is not yet.
fn settles(index: &Index<'_>, pool: usize) -> Option<jiff::Timestamp> {
    let claims = index.claims.iter().filter(|claim| claim.pool == Some(pool));
    let times = claims.filter_map(|claim| claim.claim.created?.checked_add(SETTLING).ok());
    times.max().filter(|time| *time > index.now)
}

/// Total size of the launched claims of a pool that stay.
fn resources(index: &Index<'_>, pool: usize, leaving: &Leaving) -> Resources {
    let mut total: Resources = ["cpu", "memory", "pods", "ephemeral-storage"]
        .into_iter()
        .map(|name| (name.to_owned(), Quantity::ZERO))
        .collect();
    let mut nodes = 0;
    for (at, claim) in index.claims.iter().enumerate() {
        if claim.pool == Some(pool) && !leaving.claims[at] && claim.is_launched() {
            nodes += 1;
            amounts::add(&mut total, &crate::expected::capacity(index, claim), 1);
        }
    }
    total.insert("nodes".to_owned(), Quantity::units(nodes));
    total
}

/// Hash of everything in a pool that its claims copy, apart from requirements. Source: reference A13 ("Hash covers").
pub(crate) fn template_hash(pool: &Pool) -> String {
    let mut template = pool.spec.template.clone();
    template.spec.requirements.clear();
    // Maps are sorted and no key is anything but a text, so this can't fail; if it did, all claims would be alike.
    let text = serde_json::to_string(&template).unwrap_or_default();
    hash(&[&text]).get(..16).unwrap_or_default().to_owned()
}
