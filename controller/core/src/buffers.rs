//! The status of a buffer: what its reference gave, and whether its chunks have room.
//!
//! `Provisioning` is True only while every chunk fits on nodes that take pods now, and no longer (design 6). Reasons and messages:
//! reference A10.

use buffer_api::{CapacityBufferStatus, capacity_buffer::ACTIVE_CAPACITY, conditions::buffer as text};
use jiff::Timestamp;

use crate::{
    conditions::{Wanted, same},
    demand::{Group, Source},
    index::sorted,
    place::Outcome,
    plan::BufferStatus,
    quota,
    resolve::{Referents, Resolution, is_ours, resolve},
    snapshot::{Buffer, Snapshot},
};

const OURS: [&str; 3] = [text::LIMITED_BY_QUOTAS, text::PROVISIONING, text::READY_FOR_PROVISIONING];

/// A buffer that is acted on, with what became of its reference.
#[derive(Clone, Debug)]
pub struct Active<'a> {
    /// The buffer.
    pub buffer: &'a Buffer,
    /// What became of its reference, with the number of chunks that its quotas allow.
    pub resolution: Resolution<'a>,
    /// The condition `LimitedByQuotas`, where there is something to say.
    pub quotas: Option<Wanted>,
}

/// The buffers that are acted on, by key: those of our strategy that are not being deleted.
#[must_use]
pub fn active(snapshot: &Snapshot) -> Vec<Active<'_>> {
    let buffers = sorted(&snapshot.buffers, |buffer| &buffer.key).into_iter();
    let buffers = buffers.filter(|buffer| !buffer.deleting && is_ours(buffer));
    let referents = Referents::new(snapshot);
    let mut active: Vec<Active<'_>> = buffers
        .map(|buffer| Active { buffer, resolution: resolve(buffer, &referents), quotas: None })
        .collect();
    quota::limit(&mut active, snapshot);
    active
}

/// How the chunks of one buffer fare.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Share {
    /// Chunks that need nodes which do not take pods yet.
    new: u64,
    /// Chunks that can't be had.
    pub(crate) failed: u64,
}

/// The statuses that differ from what is stored.
pub(crate) fn statuses(
    snapshot: &Snapshot,
    active: &[Active<'_>],
    shares: &[Share],
    now: Timestamp,
) -> Vec<BufferStatus> {
    let active = active.iter().zip(shares).filter_map(|(active, share)| {
        let status = status(active, *share, now);
        (!equal(&active.buffer.status, &status))
            .then(|| BufferStatus { key: active.buffer.key.clone(), status })
    });
    // A buffer that was ours and has got a foreign strategy loses the status that we gave it (row F3).
    let left = sorted(&snapshot.buffers, |buffer| &buffer.key).into_iter().filter(|buffer| {
        let echo = buffer.status.provisioning_strategy.as_deref();
        !buffer.deleting && !is_ours(buffer) && matches!(echo, Some("" | ACTIVE_CAPACITY))
    });
    let left =
        left.map(|buffer| BufferStatus { key: buffer.key.clone(), status: CapacityBufferStatus::default() });
    active.chain(left).collect()
}

/// Deals the outcome of each group out to its buffers, in the order of their keys.
pub(crate) fn shares(buffers: usize, groups: &[Group<'_>], outcomes: &[Outcome]) -> Vec<Share> {
    let mut shares = vec![Share::default(); buffers];
    for (group, outcome) in groups.iter().zip(outcomes) {
        let Source::Buffers(members) = &group.source else { continue };
        let (mut ready, mut coming) = (outcome.ready, outcome.coming);
        for (buffer, count) in members {
            let fits = ready.min(*count);
            let comes = coming.min(*count - fits);
            (ready, coming) = (ready - fits, coming - comes);
            if let Some(share) = shares.get_mut(*buffer) {
                *share = Share { new: comes, failed: *count - fits - comes };
            }
        }
    }
    shares
}

fn status(active: &Active<'_>, share: Share, now: Timestamp) -> CapacityBufferStatus {
    let buffer = active.buffer;
    let chunks = active.resolution.chunks.as_ref();
    let replicas = chunks.map(|chunks| chunks.replicas);
    let template = chunks.and_then(|chunks| chunks.template.clone());
    let stored = &buffer.status.conditions;
    let generation = Some(buffer.generation);
    let condition = |wanted: Wanted| wanted.over(stored, generation, now);
    CapacityBufferStatus {
        pod_template_generation: template.as_ref().map(|(_, generation)| *generation),
        pod_template_ref: template.map(|(reference, _)| reference),
        replicas,
        provisioning_strategy: Some(
            buffer.spec.provisioning_strategy.clone().unwrap_or_else(|| ACTIVE_CAPACITY.to_owned()),
        ),
        conditions: [
            Some(active.resolution.condition.clone()),
            active.quotas.clone(),
            Some(provisioning(replicas, share)),
        ]
        .into_iter()
        .flatten()
        .map(condition)
        .collect(),
    }
}

fn provisioning(replicas: Option<i32>, share: Share) -> Wanted {
    let (status, reason, message) = match replicas {
        None => ("False", text::NOT_READY_FOR_PROVISIONING, text::NOT_READY_MESSAGE.to_owned()),
        Some(0) => ("False", text::BUFFER_EMPTY, text::EMPTY_MESSAGE.to_owned()),
        Some(desired) if share == Share::default() => {
            ("True", text::FITS_EXISTING_CAPACITY, text::fits_message(desired))
        }
        Some(desired) => {
            let number = |count: u64| i32::try_from(count).unwrap_or(i32::MAX);
            let message = text::requires_message(number(share.new), desired, number(share.failed));
            ("False", text::REQUIRES_NEW_CAPACITY, message)
        }
    };
    Wanted { kind: text::PROVISIONING, status, reason, message }
}

/// Whether the stored status says the same, apart from conditions that are not ours.
fn equal(stored: &CapacityBufferStatus, wanted: &CapacityBufferStatus) -> bool {
    let values = |status: &CapacityBufferStatus| {
        (
            status.pod_template_ref.clone(),
            status.replicas,
            status.pod_template_generation,
            status.provisioning_strategy.clone(),
        )
    };
    values(stored) == values(wanted) && same(&stored.conditions, &wanted.conditions, &OURS)
}
