//! What wants a place: pods that the scheduler could not place, pods on nodes that leave, and the chunks of buffers.
//!
//! Identical pods are one group with a count. Real pods come first, then chunks; of each the bigger ones first.

use std::{cmp::Reverse, collections::BTreeMap};

use buffer_api::Quantity;
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

    let mut keys = Keys::default();
    let mut real: BTreeMap<String, Group<'a>> = BTreeMap::new();
    for pod in pending.chain(moving) {
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
#[derive(Default)]
struct Keys(BTreeMap<*const PodShape, String>);

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
