//! How many copies of a pod fit on the nodes that are there, and why not more.
//!
//! Copies of one shape are counted by arithmetic, which is exact. Of several buffers the larger chunks are placed first, each
//! on the nodes that the fewest others can use.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use buffer_api::Quantity;
use k8s_openapi::api::core::v1::{PodAffinityTerm, PodSpec, PodTemplateSpec};

use super::{
    NotJudged, fit,
    requests::{self, Requests},
    state::{Node, Pod},
};

/// A pod shape that a buffer keeps room for.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// Name of the buffer.
    pub buffer: String,
    /// Namespace that the pods would be in.
    pub namespace: String,
    /// Labels that the pods would have.
    pub labels: BTreeMap<String, String>,
    /// Spec that the pods would have.
    pub spec: PodSpec,
    /// Copies that there should be room for.
    pub wanted: u64,
}

impl Chunk {
    /// The chunk of a buffer whose pods look like `template`.
    pub fn new(
        buffer: &str,
        namespace: &str,
        template: &PodTemplateSpec,
        wanted: u64,
    ) -> Result<Self, NotJudged> {
        let metadata = template.metadata.as_ref();
        Ok(Self {
            buffer: buffer.to_owned(),
            namespace: namespace.to_owned(),
            labels: metadata.and_then(|metadata| metadata.labels.clone()).unwrap_or_default(),
            spec: template.spec.clone().ok_or(NotJudged::NoSpec)?,
            wanted,
        })
    }
}

/// What fits now.
#[derive(Clone, Debug, PartialEq)]
pub struct Headroom {
    /// One entry a chunk, in the order in which they were placed.
    pub chunks: Vec<Placed>,
}

/// What fits of one chunk.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// Name of the buffer.
    pub buffer: String,
    /// Copies that there should be room for.
    pub wanted: u64,
    /// Copies that fit: all of them for a single buffer, at most the wanted ones where others need room too.
    pub placed: u64,
    /// The truth table, by node name.
    pub rows: Vec<Row>,
}

/// One node of the truth table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Name of the node.
    pub node: String,
    /// Copies that fit there.
    pub fits: u64,
    /// Why none fits.
    pub why: Option<String>,
}

impl Headroom {
    /// Whether every buffer has room for all its chunks.
    #[must_use]
    pub fn suffices(&self) -> bool {
        self.chunks.iter().all(|chunk| chunk.placed >= chunk.wanted)
    }

    /// Copies that fit in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.chunks.iter().fold(0, |sum, chunk| sum.saturating_add(chunk.placed))
    }

    /// One line, such as `web: 2 of 3 fit`.
    #[must_use]
    pub fn summary(&self) -> String {
        let chunks = self.chunks.iter();
        let lines: Vec<_> =
            chunks.map(|c| format!("{}: {} of {} fit", c.buffer, c.placed, c.wanted)).collect();
        lines.join(", ")
    }

    /// The truth table of every chunk that lacks room. Many nodes of which the same is true share a line.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::new();
        for chunk in self.chunks.iter().filter(|chunk| chunk.placed < chunk.wanted) {
            // writing to a String can't fail
            let _ = writeln!(
                text,
                "{}: {} of {} fit on {} nodes",
                chunk.buffer,
                chunk.placed,
                chunk.wanted,
                chunk.rows.len()
            );
            for rows in alike(&chunk.rows) {
                let named = |row: &&Row| row.node.clone();
                let lines = if let [first, _, .., last] = rows[..]
                    && rows.len() > NAMED
                {
                    vec![format!("{} nodes, {} to {}", rows.len(), first.node, last.node)]
                } else {
                    rows.iter().map(named).collect()
                };
                for nodes in lines {
                    let _ = match &rows[0].why {
                        Some(why) => writeln!(text, "  {nodes}: {} ({why})", rows[0].fits),
                        None => writeln!(text, "  {nodes}: {}", rows[0].fits),
                    };
                }
            }
        }
        text
    }
}

/// Nodes of which the same is true, up to which each has a line of its own.
const NAMED: usize = 4;

/// The rows of which the same is true, each group in the order of the rows, never empty.
fn alike(rows: &[Row]) -> Vec<Vec<&Row>> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|group| (group[0].fits, &group[0].why) == (row.fits, &row.why)) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

/// A chunk with everything about it that does not depend on nodes.
struct Shape<'a> {
    chunk: &'a Chunk,
    requests: Requests,
    apart: &'a [PodAffinityTerm],
}

/// A node with the room that is left.
struct Room<'a> {
    node: &'a Node,
    free: Requests,
    /// Pods that are there: namespace and labels.
    present: Vec<(&'a str, &'a BTreeMap<String, String>)>,
    /// Shapes that were placed there.
    placed: Vec<usize>,
}

/// Counts how many copies of each chunk fit on `nodes` beside `pods`. The order of nodes, pods and chunks does not matter.
pub fn measure<'a>(
    nodes: impl IntoIterator<Item = &'a Node>,
    pods: impl IntoIterator<Item = &'a Pod>,
    chunks: &'a [Chunk],
) -> Result<Headroom, NotJudged> {
    let mut rooms: BTreeMap<&str, Room<'a>> = nodes
        .into_iter()
        .map(|node| {
            let room = Room { node, free: node.allocatable.clone(), present: Vec::new(), placed: Vec::new() };
            (node.name.as_str(), room)
        })
        .collect();
    for pod in pods.into_iter().filter(|pod| pod.occupies()) {
        if let Some(room) = pod.node.as_deref().and_then(|name| rooms.get_mut(name)) {
            let unread = || NotJudged::Pod(format!("{}/{}", pod.namespace, pod.name));
            take(&mut room.free, pod.requests.as_ref().ok_or_else(unread)?, 1);
            room.present.push((&pod.namespace, &pod.labels));
        }
    }
    let mut rooms: Vec<_> = rooms.into_values().collect();
    let shapes = sorted_shapes(chunks, &rooms)?;

    let mut measured = Vec::with_capacity(shapes.len());
    for index in 0..shapes.len() {
        measured.push(place(index, &shapes, &mut rooms));
    }
    Ok(Headroom { chunks: measured })
}

/// Larger chunks first: by the greatest share of all that is allocatable, then by name.
fn sorted_shapes<'a>(chunks: &'a [Chunk], rooms: &[Room<'_>]) -> Result<Vec<Shape<'a>>, NotJudged> {
    let mut total = Requests::new();
    for room in rooms {
        requests::add(&mut total, &room.node.allocatable);
    }
    let share = |requests: &Requests| -> i128 {
        let shares = requests.iter().map(|(name, amount)| {
            let whole = total.get(name).copied().unwrap_or_default().as_nanos().max(1);
            amount.as_nanos().saturating_mul(1_000_000) / whole
        });
        shares.max().unwrap_or_default()
    };
    let mut shapes = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        let requests = requests::effective(&chunk.spec)?;
        shapes.push(Shape { chunk, requests, apart: fit::anti_affinity(&chunk.spec)? });
    }
    shapes.sort_by_cached_key(|shape| {
        (Reverse(share(&shape.requests)), shape.chunk.buffer.clone(), shape.chunk.namespace.clone())
    });
    Ok(shapes)
}

fn place(index: usize, shapes: &[Shape<'_>], rooms: &mut [Room<'_>]) -> Placed {
    let shape = &shapes[index];
    let alone = shapes.len() == 1;
    let mut missing = if alone { u64::MAX } else { shape.chunk.wanted };
    let mut placed = 0_u64;
    let mut taken = taken_domains(shape, shapes, rooms);
    let mut rows = BTreeMap::new();

    let mut order: Vec<usize> = (0..rooms.len()).collect();
    let rivals = |room: &Room<'_>| {
        let others = shapes.iter().skip(index + 1);
        others.filter(|other| fit::excluded(&other.chunk.spec, room.node).is_none()).count()
    };
    order.sort_by_cached_key(|room| (rivals(&rooms[*room]), *room));

    for at in order {
        let (fits, why) = copies(shape, &rooms[at], &taken);
        let count = fits.min(missing);
        if count > 0 {
            let room = &mut rooms[at];
            take(&mut room.free, &shape.requests, count);
            room.placed.push(index);
            taken.extend(own_domains(shape, room.node));
            missing -= count;
            placed = placed.saturating_add(count);
        }
        let node = rooms[at].node.name.clone();
        rows.insert(node.clone(), Row { node, fits, why });
    }
    let rows = rows.into_values().collect();
    Placed { buffer: shape.chunk.buffer.clone(), wanted: shape.chunk.wanted, placed, rows }
}

/// How many copies fit on one node, and why none.
fn copies(shape: &Shape<'_>, room: &Room<'_>, taken: &BTreeSet<(String, String)>) -> (u64, Option<String>) {
    if let Some(why) = fit::excluded(&shape.chunk.spec, room.node) {
        return (0, Some(why));
    }
    for (key, value) in taken {
        if room.node.labels.get(key) == Some(value) {
            return (0, Some(format!("anti-affinity: {key}={value} is taken")));
        }
    }
    let one_pod = [("pods".to_owned(), Quantity::units(1))];
    let mut most = u64::MAX;
    let mut why = None;
    for (name, amount) in shape.requests.iter().map(|(name, amount)| (name.clone(), *amount)).chain(one_pod) {
        let free = room.free.get(&name).copied().unwrap_or_default();
        let Some(fits) = free.fits(amount) else { continue };
        if fits == 0 && most > 0 {
            why = Some(format!("{name}: {free} free of {}, {amount} needed", allocatable(room.node, &name)));
        }
        most = most.min(fits);
    }
    let capped = if own_domains(shape, room.node).is_empty() { most } else { most.min(1) };
    (capped, why)
}

fn allocatable(node: &Node, resource: &str) -> Quantity {
    node.allocatable.get(resource).copied().unwrap_or_default()
}

/// Takes the requests of `count` pods from what is free.
fn take(free: &mut Requests, requests: &Requests, count: u64) {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let pods = ("pods".to_owned(), Quantity::units(1));
    for (name, amount) in requests.iter().map(|(name, amount)| (name.clone(), *amount)).chain([pods]) {
        let entry = free.entry(name).or_default();
        *entry = entry.minus(amount.times(count));
    }
}

/// Topology domains (label key and value) of a node in which a second copy may not be.
fn own_domains(shape: &Shape<'_>, node: &Node) -> Vec<(String, String)> {
    let Chunk { namespace, labels, .. } = shape.chunk;
    let about_itself =
        shape.apart.iter().filter(|term| fit::term_is_about(term, namespace, namespace, labels));
    about_itself.filter_map(|term| domain(term, node)).collect()
}

/// Topology domains in which no copy may be, because of the pods there or of the chunks placed there.
fn taken_domains(shape: &Shape<'_>, shapes: &[Shape<'_>], rooms: &[Room<'_>]) -> BTreeSet<(String, String)> {
    let Chunk { namespace: home, labels: own, .. } = shape.chunk;
    let mut taken = BTreeSet::new();
    for room in rooms {
        for term in shape.apart {
            let chunks = room.placed.iter().map(|index| shapes[*index].chunk);
            let chunks = chunks.map(|chunk| (chunk.namespace.as_str(), &chunk.labels));
            let mut others = room.present.iter().copied().chain(chunks);
            if others.any(|(namespace, labels)| fit::term_is_about(term, home, namespace, labels)) {
                taken.extend(domain(term, room.node));
            }
        }
        // the rule binds both sides
        for other in room.placed.iter().map(|index| &shapes[*index]) {
            let about_us =
                |term: &&PodAffinityTerm| fit::term_is_about(term, &other.chunk.namespace, home, own);
            taken.extend(other.apart.iter().filter(about_us).filter_map(|term| domain(term, room.node)));
        }
    }
    taken
}

fn domain(term: &PodAffinityTerm, node: &Node) -> Option<(String, String)> {
    let value = node.labels.get(&term.topology_key)?;
    Some((term.topology_key.clone(), value.clone()))
}

#[cfg(test)]
mod tests;
