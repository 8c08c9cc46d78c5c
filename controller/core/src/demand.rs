//! What wants a place: pods that the scheduler could not place, pods on nodes that leave, and the chunks of buffers.
//!
//! Identical pods are one group with a count. Real pods come first, then chunks; of each the bigger ones first.

use std::{cmp::Reverse, collections::BTreeMap};

use buffer_api::Quantity;
use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};

use crate::{
    amounts,
    index::Index,
    snapshot::{Pod, PodShape},
};

/// Pods of one shape.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// Hash of the shape: the same in every plan.
    pub key: String,
    /// Shape.
    pub shape: &'a PodShape,
    /// How many.
    pub count: u64,
    /// Who wants them.
    pub source: Source<'a>,
}

/// Who wants a group.
#[derive(Clone, Debug)]
pub enum Source<'a> {
    /// Real pods, in the order of their keys.
    Pods(Vec<&'a Pod>),
    /// Buffers (position in the list that was given) with the number of chunks of each.
    Buffers(Vec<(usize, u64)>),
}

impl Group<'_> {
    /// Whether the group is made of chunks.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        matches!(self.source, Source::Buffers(_))
    }
}

/// All demand, in the order in which it is to be placed.
///
/// `leaving` tells for each node whether it leaves; `chunks` are shape and number by buffer.
pub(crate) fn demand<'a>(
    index: &Index<'a>,
    leaving: &[bool],
    chunks: impl Iterator<Item = (usize, &'a PodShape, u64)>,
) -> Vec<Group<'a>> {
    let pending = index
        .unbound
        .iter()
        .copied()
        .filter(|pod| pod.unschedulable && !pod.deleting && !pod.daemon && !pod.mirror);
    let moving = index.nodes.iter().zip(leaving).filter(|(_, leaves)| **leaves);
    let moving = moving.flat_map(|(view, _)| view.pods.iter().copied());
    let moving = moving.filter(|pod| !pod.daemon && !pod.mirror && !pod.deleting);

    grouped(pending.chain(moving), chunks, &mut Keys::default())
}

/// How long the scheduler may take to look at a new pod, and a controller to make a pod in place of one that was told to end.
const UNDECIDED: SignedDuration = SignedDuration::from_secs(5);

/// Pods that may want a place in a moment.
#[derive(Debug, Default)]
pub(crate) struct Moving<'a> {
    /// New ones that the scheduler has yet to look at.
    pub(crate) new: Vec<Group<'a>>,
    /// Pods have just been told to end on a node that leaves: their successors are not seen yet.
    pub(crate) ending: bool,
    /// When the first of them stops being one.
    pub(crate) until: Option<Timestamp>,
}

/// Finds the pods that may want a place in a moment.
pub(crate) fn moving<'a>(index: &Index<'a>, leaving: &[bool]) -> Moving<'a> {
    let until =
        |since: Option<Timestamp>| since?.checked_add(UNDECIDED).ok().filter(|time| *time > index.now);
    let is_new = |pod: &&Pod| !pod.unschedulable && !pod.deleting && !pod.daemon && !pod.mirror;
    let new: Vec<&Pod> =
        index.unbound.iter().copied().filter(is_new).filter(|pod| until(pod.created).is_some()).collect();
    let nodes = index.nodes.iter().zip(leaving).filter(|(_, leaves)| **leaves);
    let pods = nodes.flat_map(|(view, _)| view.pods.iter().copied());
    let ending = pods.filter(|pod| !pod.daemon && !pod.mirror).filter_map(|pod| until(pod.deleted_at)).min();
    let first = new.iter().filter_map(|pod| until(pod.created)).min();
    Moving {
        new: grouped(new.into_iter(), std::iter::empty(), &mut Keys::default()),
        ending: ending.is_some(),
        until: [ending, first].into_iter().flatten().min(),
    }
}

/// Groups pods and chunks by shape, in the order in which they are to be placed.
pub(crate) fn grouped<'a>(
    pods: impl Iterator<Item = &'a Pod>,
    chunks: impl Iterator<Item = (usize, &'a PodShape, u64)>,
    keys: &mut Keys,
) -> Vec<Group<'a>> {
    let mut real: BTreeMap<String, Group<'a>> = BTreeMap::new();
    for pod in pods {
        let key = keys.of(&pod.shape);
        let group = real.entry(key.clone()).or_insert_with(|| Group {
            key,
            shape: &pod.shape,
            count: 0,
            source: Source::Pods(Vec::new()),
        });
        group.count += 1;
        if let Source::Pods(pods) = &mut group.source {
            pods.push(pod);
        }
    }
    let mut virtual_: BTreeMap<String, Group<'a>> = BTreeMap::new();
    for (buffer, shape, count) in chunks.filter(|(_, _, count)| *count > 0) {
        let key = keys.of(shape);
        let group = virtual_.entry(key.clone()).or_insert_with(|| Group {
            key,
            shape,
            count: 0,
            source: Source::Buffers(Vec::new()),
        });
        group.count = group.count.saturating_add(count);
        if let Source::Buffers(buffers) = &mut group.source {
            buffers.push((buffer, count));
        }
    }
    let mut groups: Vec<Group<'a>> = real.into_values().chain(virtual_.into_values()).collect();
    groups.sort_by_cached_key(|group| {
        let amount = |name: &str| amounts::get(&group.shape.requests, name);
        let size: (Reverse<Quantity>, Reverse<Quantity>) =
            (Reverse(amount("cpu")), Reverse(amount("memory")));
        (group.is_virtual(), size, group.key.clone())
    });
    for group in &mut groups {
        if let Source::Pods(pods) = &mut group.source {
            pods.sort_by(|one, two| one.key.cmp(&two.key));
        }
    }
    groups
}

/// Keys of shapes; pods that share a shape in memory are hashed once.
#[derive(Debug, Default)]
pub(crate) struct Keys(BTreeMap<*const PodShape, String>);

impl Keys {
    fn of(&mut self, shape: &PodShape) -> String {
        self.0.entry(std::ptr::from_ref(shape)).or_insert_with(|| shape_key(shape)).clone()
    }
}

/// The text form names every field in a fixed order (maps are sorted), so equal shapes and only those have equal keys.
fn shape_key(shape: &PodShape) -> String {
    hash(&[&format!("{shape:?}")])
}

/// SHA-256 over parts that can't run into each other, in hexadecimal.
pub(crate) fn hash(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.len().to_le_bytes());
        hasher.update(part.as_bytes());
    }
    format!("{:x}", hasher.finalize())
}
