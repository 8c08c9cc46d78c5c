//! Who goes where: groups of demand onto nodes and claims that are there already, by arithmetic.
//!
//! Order: nodes that take pods now (first those that stay anyway: not ours to remove, or with pods that would have to move), then nodes and claims
//! that are on their way (initialised ones first), then nodes that are marked for removal; within each, what was bought earlier
//! first, then by name. What then still has no place is bought ([`crate::claims`]).
//!
//! A claim counts from the moment that it exists, whatever state it is in, so that no node is bought twice.

use std::collections::BTreeSet;

use buffer_api::labels;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Taint;

use crate::{
    amounts,
    claims::{Bought, REPLACES},
    demand::Group,
    expected,
    fit::{self, Needs, Repelling},
    index::{ClaimView, Index, NodeView},
    lifecycle::{self, Leaving},
    offers::Type,
    requirements::{Requirements, Values},
    snapshot::{DaemonSet, Labels, Pod, PodShape, Resources},
};

/// How long an initialised node that is silent is expected to come back: as long as its pods stay on it by default
/// (`tolerationSeconds` 300 of the not-ready and unreachable taints).
pub const SILENCE: SignedDuration = SignedDuration::from_mins(5);

/// How far a place for pods has come.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Standing {
    /// Takes pods now.
    Ready,
    /// Is on its way.
    Coming,
    /// Takes pods again once the mark of its removal is taken off.
    Marked,
}

/// A node or claim with the room that is left on it.
#[derive(Clone, Debug)]
pub struct Room<'a> {
    /// Node in the index.
    pub node: Option<usize>,
    /// Claim in the index.
    pub claim: Option<usize>,
    /// How far it has come.
    pub standing: Standing,
    /// What was placed on it: group and number.
    pub placed: Vec<(usize, u64)>,
    name: Option<&'a str>,
    labels: RoomLabels<'a>,
    taints: Vec<&'a Taint>,
    free: Resources,
    there: Vec<(&'a PodShape, u64)>,
    repels: bool,
    bought: Bought,
    rank: (Standing, bool, u64, &'a str),
}

/// What is known of the labels of a node that may not exist yet.
#[derive(Clone, Debug, Default)]
struct RoomLabels<'a> {
    node: Option<&'a Labels>,
    /// The node has all its labels; nothing else is looked at.
    settled: bool,
    /// Labels of the claim, then those that the cloud says its instance has.
    claim: [Option<&'a Labels>; 2],
    requirements: Requirements,
    types: Vec<&'a Type>,
}

impl RoomLabels<'_> {
    /// Whether the label is sure to be as `values` wants it.
    fn allows(&self, key: &str, values: &Values) -> bool {
        if let Some(value) = self.node.and_then(|labels| labels.get(key)) {
            return values.allows(Some(value));
        }
        if self.settled {
            return values.allows(None);
        }
        if let Some(value) = self.claim.iter().flatten().find_map(|labels| labels.get(key)) {
            return values.allows(Some(value));
        }
        if key == labels::HOSTNAME {
            return values.allows_new();
        }
        if let Some(required) = self.requirements.get(key) {
            return required.is_within(values);
        }
        let mut of_types = self.types.iter().filter_map(|kind| kind.labels.get(key)).peekable();
        if of_types.peek().is_some() {
            let absent_fits =
                values.allows(None) || self.types.iter().all(|kind| kind.labels.get(key).is_some());
            return absent_fits && of_types.all(|own| own.is_within(values));
        }
        values.allows(None)
    }

    fn has_host_name(&self) -> bool {
        !self.settled || self.node.is_some_and(|labels| labels.contains_key(labels::HOSTNAME))
    }
}

impl<'a> Room<'a> {
    /// A node that will come of a purchase, once it takes pods.
    pub(crate) fn to_come(
        requirements: Requirements,
        types: Vec<&'a Type>,
        taints: &'a [Taint],
        free: Resources,
        daemons: Vec<(&'a PodShape, u64)>,
        bought: Bought,
    ) -> Self {
        Self {
            node: None,
            claim: None,
            standing: Standing::Ready,
            placed: Vec::new(),
            name: None,
            labels: RoomLabels { requirements, types, ..RoomLabels::default() },
            taints: taints.iter().collect(),
            free,
            repels: daemons.iter().any(|(shape, _)| fit::repels(shape)),
            there: daemons,
            rank: (Standing::Ready, true, bought.number, ""),
            bought,
        }
    }

    /// How many copies of a shape find place here.
    #[must_use]
    pub fn copies(&self, needs: &Needs<'_>) -> u64 {
        let copies = amounts::copies(&self.free, &needs.shape.requests);
        if copies == 0 || needs.unsupported.is_some() || !self.suits(needs) {
            return 0;
        }
        if needs.has_own_rules() || self.repels {
            return copies.min(needs.room_beside(&self.there));
        }
        copies
    }

    fn suits(&self, needs: &Needs<'_>) -> bool {
        needs.tolerates(self.taints.iter().copied())
            && (!needs.needs_host_name() || self.labels.has_host_name())
            && needs.terms.iter().any(|term| {
                term.allows_name(self.name)
                    && term.labels.iter().all(|(key, values)| self.labels.allows(key, values))
            })
    }

    /// Takes in as many copies as fit, at most `most`; how many.
    pub(crate) fn place(&mut self, group: usize, needs: &Needs<'a>, most: u64, outcome: &mut Outcome) -> u64 {
        let count = self.copies(needs).min(most);
        if count == 0 {
            return 0;
        }
        self.placed.push((group, count));
        amounts::subtract(&mut self.free, &needs.shape.requests, i64::try_from(count).unwrap_or(i64::MAX));
        self.there.push((needs.shape, count));
        self.repels |= fit::repels(needs.shape);
        match self.standing {
            Standing::Ready => outcome.ready += count,
            Standing::Coming | Standing::Marked => outcome.coming += count,
        }
        count
    }

    /// Number of the purchase that the claim comes from, while it is on its way.
    pub(crate) fn coming_from(&self) -> Option<u64> {
        (self.standing == Standing::Coming && self.bought.number > 0).then_some(self.bought.number)
    }

    /// Whether it is known what the claim was bought for.
    pub(crate) fn remembers(&self) -> bool {
        self.bought.number > 0
    }
}

/// Daemons, ready to be compared with many nodes.
#[derive(Debug)]
pub struct Daemon<'a> {
    /// Their shape.
    pub needs: Needs<'a>,
}

impl<'a> Daemon<'a> {
    /// Makes the pods of DaemonSets ready.
    pub(crate) fn all(sets: &[&'a DaemonSet]) -> Vec<Self> {
        sets.iter().map(|set| Self { needs: Needs::new(&set.shape, &[]) }).collect()
    }

    /// Whether the pod runs in spite of these taints. The DaemonSet controller lets its pods tolerate the node conditions' taints.
    pub fn tolerates<'t>(&self, taints: impl IntoIterator<Item = &'t Taint>) -> bool {
        self.needs.tolerates(taints.into_iter().filter(|taint| !taint.key.starts_with("node.kubernetes.io/")))
    }
}

/// All places there are, in the order in which they are filled.
///
/// `marked` nodes are taken to be marked for removal, and the rooms `to_come` to be there.
pub(crate) fn rooms<'a>(
    index: &'a Index<'a>,
    leaving: &Leaving,
    daemons: &[Daemon<'a>],
    marked: &BTreeSet<usize>,
    to_come: Vec<Room<'a>>,
) -> Vec<Room<'a>> {
    let reserve = reserves(index, leaving, marked);
    let nodes = index.nodes.iter().enumerate().filter(|(at, _)| !leaving.nodes[*at]);
    let nodes = nodes.filter_map(|(at, view)| node_room(index, at, view, daemons, marked.contains(&at)));
    let claims = index.claims.iter().enumerate();
    let claims = claims.filter(|(at, view)| !leaving.claims[*at] && view.node.is_none());
    let claims = claims.map(|(at, view)| claim_room(index, at, view, daemons));
    let mut rooms: Vec<Room<'a>> = nodes.chain(claims).chain(to_come).collect();
    for room in &mut rooms {
        if room.standing == Standing::Marked || room.claim.is_some_and(|at| reserve.contains(&at)) {
            room.bought.groups.clear();
        }
    }
    rooms.sort_by(|one, two| one.rank.cmp(&two.rank));
    rooms
}

/// Claims that were bought to replace others which stand there as before: what they were bought for is in its old place still.
fn reserves(index: &Index<'_>, leaving: &Leaving, marked: &BTreeSet<usize>) -> BTreeSet<usize> {
    let replaces = |claim: &ClaimView<'_>| claim.claim.annotations.contains_key(REPLACES);
    if !index.claims.iter().any(replaces) {
        return BTreeSet::new();
    }
    let stands = |at: usize, view: &ClaimView<'_>| {
        let node = view.node.filter(|node| !marked.contains(node)).and_then(|node| index.nodes.get(node));
        !leaving.claims[at] && node.is_some_and(|node| !node.has_taint(labels::DISRUPTED_TAINT))
    };
    let standing: BTreeSet<&str> = index
        .claims
        .iter()
        .enumerate()
        .filter(|(at, view)| stands(*at, view))
        .map(|(_, view)| view.claim.uid.as_str())
        .collect();
    let is_reserve = |view: &ClaimView<'_>| {
        let old = view.claim.annotations.get(REPLACES);
        old.is_some_and(|uids| uids.split(',').any(|uid| standing.contains(uid)))
    };
    index.claims.iter().enumerate().filter(|(_, view)| is_reserve(view)).map(|(at, _)| at).collect()
}

/// When a place that is silent now stops being counted on.
pub(crate) fn next_deadline(index: &Index<'_>, leaving: &Leaving) -> Option<Timestamp> {
    let nodes =
        index.nodes.iter().enumerate().filter(|(at, view)| !leaving.nodes[*at] && view.claim.is_some());
    nodes.filter_map(|(_, view)| silence_ends(view)).filter(|end| *end > index.now).min()
}

fn silence_ends(view: &NodeView<'_>) -> Option<Timestamp> {
    let since = view.node.ready_since.filter(|_| view.was_initialized() && !view.node.ready)?;
    since.checked_add(SILENCE).ok()
}

fn node_room<'a>(
    index: &'a Index<'a>,
    at: usize,
    view: &'a NodeView<'a>,
    daemons: &[Daemon<'a>],
    is_marked: bool,
) -> Option<Room<'a>> {
    let node = view.node;
    if node.unschedulable {
        return None;
    }
    let claim = index.claim_of(view);
    if claim.is_none() && (!node.ready || lifecycle::is_orphan(view)) {
        return None;
    }
    if silence_ends(view).is_some_and(|end| end <= index.now) {
        return None;
    }
    let initialized = claim.is_none() || view.initialized;
    let standing = if !(node.ready && initialized) {
        Standing::Coming
    } else if claim.is_some() && (is_marked || view.has_taint(labels::DISRUPTED_TAINT)) {
        Standing::Marked
    } else {
        Standing::Ready
    };
    let stays = claim.is_none() || view.reschedulable().next().is_some();
    let name = claim.filter(|_| standing == Standing::Coming).map_or(&node.name, |view| &view.claim.name);
    // Ready nodes: those that stay first. Nodes on their way: those that were ready once first.
    let first = if standing == Standing::Coming { view.initialized } else { stays };
    let bought = claim.map(|view| Bought::new(view.claim)).unwrap_or_default();
    let mut room = Room {
        node: Some(at),
        claim: view.claim,
        standing,
        placed: Vec::new(),
        name: Some(&node.name),
        labels: RoomLabels { node: Some(&node.labels), settled: true, ..RoomLabels::default() },
        taints: taints(view, claim, initialized),
        free: node.allocatable.clone(),
        there: Vec::new(),
        repels: false,
        rank: (standing, !first, bought.number, name),
        bought,
    };
    if let Some(claim) = claim {
        if !initialized {
            for (resource, amount) in expected::allocatable(index, claim) {
                let stored = room.free.entry(resource).or_default();
                if !stored.is_positive() {
                    *stored = amount;
                }
            }
        }
        if !view.was_registered() {
            room.labels = RoomLabels { node: Some(&node.labels), ..expected_labels(index, claim) };
        }
    }
    let mut daemons_there = Resources::new();
    for pod in &view.pods {
        amounts::subtract(&mut room.free, &pod.shape.requests, 1);
        if pod.daemon {
            amounts::add(&mut daemons_there, &pod.shape.requests, 1);
        }
        room.repels |= fit::repels(&pod.shape);
    }
    room.there = occupants(&view.pods);
    reserve(&mut room, daemons, &daemons_there);
    Some(room)
}

/// Pods by shape; neighbours that share a shape in memory are counted together.
fn occupants<'a>(pods: &[&'a Pod]) -> Vec<(&'a PodShape, u64)> {
    let mut all: Vec<(&'a PodShape, u64)> = Vec::with_capacity(pods.len());
    for pod in pods {
        match all.last_mut() {
            Some((shape, count)) if std::ptr::eq(*shape, &raw const *pod.shape) => *count += 1,
            _ => all.push((&pod.shape, 1)),
        }
    }
    all
}

fn claim_room<'a>(
    index: &'a Index<'a>,
    at: usize,
    view: &'a ClaimView<'a>,
    daemons: &[Daemon<'a>],
) -> Room<'a> {
    let bought = Bought::new(view.claim);
    let mut room = Room {
        node: None,
        claim: Some(at),
        standing: Standing::Coming,
        placed: Vec::new(),
        name: None,
        labels: expected_labels(index, view),
        taints: view.claim.spec.taints.iter().collect(),
        free: expected::allocatable(index, view),
        there: Vec::new(),
        repels: false,
        rank: (Standing::Coming, true, bought.number, &view.claim.name),
        bought,
    };
    reserve(&mut room, daemons, &Resources::new());
    room
}

/// Keeps what daemons will take of a node, beyond what those that are there take already, and, as long as none is there, their host ports
/// and the like.
fn reserve<'a>(room: &mut Room<'a>, daemons: &[Daemon<'a>], there: &Resources) {
    let mut missing = Resources::new();
    for daemon in daemons {
        let runs = daemon.tolerates(room.taints.iter().copied())
            && daemon.needs.terms.iter().any(|term| {
                term.allows_name(room.name)
                    && term.labels.iter().all(|(key, values)| room.labels.allows(key, values))
            });
        if runs {
            amounts::add(&mut missing, &daemon.needs.shape.requests, 1);
            if there.is_empty() {
                room.there.push((daemon.needs.shape, 1));
                room.repels |= fit::repels(daemon.needs.shape);
            }
        }
    }
    amounts::subtract(&mut missing, there, 1);
    missing.retain(|_, amount| amount.is_positive());
    amounts::subtract(&mut room.free, &missing, 1);
}

fn expected_labels<'a>(index: &'a Index<'a>, view: &'a ClaimView<'a>) -> RoomLabels<'a> {
    RoomLabels {
        node: None,
        settled: false,
        claim: [Some(&view.claim.labels), Some(&view.claim.status.instance_labels)],
        requirements: Requirements::from_api(&view.claim.spec.requirements),
        types: expected::types(index, view),
    }
}

/// The taints that will be there when the node takes pods. Source: reference A8, "known ephemeral taints" and start-up taints.
fn taints<'a>(view: &NodeView<'a>, claim: Option<&ClaimView<'a>>, initialized: bool) -> Vec<&'a Taint> {
    let Some(claim) = claim else { return view.node.taints.iter().collect() };
    let startup = &claim.claim.spec.startup_taints;
    let passes = |taint: &Taint| {
        taint.key == labels::DISRUPTED_TAINT
            || taint.key == labels::UNREGISTERED_TAINT
            || !(initialized && view.node.ready) && lifecycle::is_ephemeral(taint)
            || !initialized
                && startup.iter().any(|own| (&own.key, &own.effect) == (&taint.key, &taint.effect))
    };
    // Registration adds the claim's own.
    let own = claim.claim.spec.taints.iter().filter(|_| !view.was_registered());
    view.node.taints.iter().filter(|taint| !passes(taint)).chain(own).collect()
}

/// What became of a group.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Outcome {
    /// Copies on nodes that take pods now.
    pub ready: u64,
    /// Copies on nodes that are on their way, marked, bought in this plan or to be bought in the next.
    pub coming: u64,
    /// Copies that can't be placed, and why.
    pub failed: u64,
    /// Why copies can't be placed.
    pub reason: Option<String>,
}

/// Groups, placed on the rooms there are.
#[derive(Debug)]
pub(crate) struct Placement<'a> {
    pub(crate) rooms: Vec<Room<'a>>,
    /// By group.
    pub(crate) outcomes: Vec<Outcome>,
    /// Copies that found no room, by group.
    pub(crate) left: Vec<u64>,
}

/// Places all groups: each claim of the purchases from number `since` on takes first what it was bought for, then everything goes where it first fits.
pub(crate) fn place<'a>(
    mut rooms: Vec<Room<'a>>,
    groups: &[Group<'a>],
    needs: &[Needs<'a>],
    since: u64,
) -> Placement<'a> {
    let mut outcomes = vec![Outcome::default(); groups.len()];
    let mut left: Vec<u64> = groups.iter().map(|group| group.count).collect();
    for as_bought in [true, false] {
        let all = groups.iter().zip(needs).zip(outcomes.iter_mut().zip(&mut left)).enumerate();
        for (at, ((group, needs), (outcome, left))) in all {
            for room in &mut rooms {
                if *left == 0 {
                    break;
                }
                let most = match as_bought {
                    true if room.bought.number < since => 0,
                    true => room.bought.copies(&group.key).min(*left),
                    false => *left,
                };
                if most > 0 {
                    *left -= room.place(at, needs, most, outcome);
                }
            }
        }
    }
    Placement { rooms, outcomes, left }
}

/// What pods that run outside of leaving nodes keep others away from, beyond their own node.
pub(crate) fn repelling<'a>(index: &Index<'a>, leaving: &Leaving) -> Vec<Repelling<'a>> {
    let nodes = index.nodes.iter().enumerate().filter(|(at, _)| !leaving.nodes[*at]);
    let pods = nodes.flat_map(|(_, view)| view.pods.iter().map(|pod| (&*pod.shape, view.node)));
    pods.flat_map(|(shape, node)| fit::repelled_domains(shape, &node.labels)).collect()
}
