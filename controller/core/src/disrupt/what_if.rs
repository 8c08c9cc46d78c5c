//! What if some nodes went: does all that is on them, pods and chunks, fit elsewhere, and what would have to be bought?
//!
//! Everything else stays where the plan has put it, so an answer costs no more than the nodes in question and the rooms that are
//! looked through; nothing is rebuilt. Source: reference A14 ("Simulation"), with the chunks of buffers as first-class load.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    amounts,
    assign::Assignment,
    claims::{Market, Purchase},
    demand::{Group, Keys, Source, grouped},
    fit::{self, Needs, Repelling},
    index::Index,
    lifecycle::Leaving,
    place::{self, Outcome, Room, Standing},
    snapshot::Pod,
};

/// Answers questions about one plan's state.
pub(crate) struct WhatIf<'p, 'a> {
    index: &'a Index<'a>,
    leaving: &'p Leaving,
    rooms: &'p [Room<'a>],
    groups: &'p [Group<'a>],
    /// Whether some pod that runs keeps others away from its node's surroundings.
    repelling: bool,
    keys: RefCell<Keys>,
}

/// What would become of the load.
#[derive(Debug)]
pub(crate) enum Answer<'a> {
    /// All of it fits on what there is.
    Fits,
    /// It fits if this is bought.
    Buys(Purchase<'a>),
    /// It does not fit.
    Fails(String),
}

impl<'p, 'a> WhatIf<'p, 'a> {
    pub(crate) fn new(
        index: &'a Index<'a>,
        leaving: &'p Leaving,
        assignment: &'p Assignment<'a>,
        groups: &'p [Group<'a>],
    ) -> Self {
        let mut pods = index.nodes.iter().flat_map(|view| &view.pods);
        let repelling = pods.any(|pod| fit::repels(&pod.shape));
        let (rooms, keys) = (assignment.rooms.as_slice(), RefCell::default());
        Self { index, leaving, rooms, groups, repelling, keys }
    }

    /// What becomes of the load of `nodes`. It may go where pods can go now, to the claims of `also`, and, where there is a market, to
    /// what is bought.
    pub(crate) fn without(
        &self,
        nodes: &BTreeSet<usize>,
        also: &BTreeSet<usize>,
        market: Option<Market<'a>>,
    ) -> Answer<'a> {
        self.answer(nodes, |room| takes(room, nodes, also), market)
    }

    /// What would have to be bought for all of the load of `nodes`, wherever else there is room.
    pub(crate) fn anew(&self, nodes: &BTreeSet<usize>, market: Market<'a>) -> Answer<'a> {
        self.answer(nodes, |_| false, Some(market))
    }

    fn answer(
        &self,
        nodes: &BTreeSet<usize>,
        takes: impl Fn(&Room<'a>) -> bool,
        mut market: Option<Market<'a>>,
    ) -> Answer<'a> {
        let repelling = self.repelling(nodes);
        let mut changed: BTreeMap<usize, Room<'a>> = BTreeMap::new();
        let mut purchase = false;
        for (at, group) in self.load(nodes).iter().enumerate() {
            let needs = Needs::new(group.shape, &repelling);
            let mut left = group.count;
            for (number, room) in self.rooms.iter().enumerate().filter(|(_, room)| takes(room)) {
                if left == 0 {
                    break;
                }
                let copies = changed.get(&number).unwrap_or(room).copies(&needs).min(left);
                if copies > 0 {
                    let room = changed.entry(number).or_insert_with(|| room.clone());
                    left -= room.place(at, &needs, copies, &mut Outcome::default());
                }
            }
            if left == 0 {
                continue;
            }
            let mut outcome = Outcome::default();
            match &mut market {
                Some(market) => market.buy(group, &needs, left, &mut outcome),
                None => return Answer::Fails("what runs on it does not fit elsewhere".to_owned()),
            }
            if outcome.failed > 0 {
                return Answer::Fails(outcome.reason.unwrap_or_default());
            }
            purchase = true;
        }
        match market.filter(|_| purchase) {
            Some(market) => Answer::Buys(market.into_purchase()),
            None => Answer::Fits,
        }
    }

    /// Whether both pods and chunks are on `nodes`.
    pub(crate) fn is_mixed(&self, nodes: &BTreeSet<usize>) -> bool {
        let load = self.load(nodes);
        load.iter().any(Group::is_virtual) && !load.iter().all(Group::is_virtual)
    }

    /// Whether the chunks of each buffer keep their room wherever the scheduler puts the pods of `nodes`. It does that as it likes: it spreads them,
    /// and the emptiest nodes are those that buffers keep. So there must be spare room for as many chunks as the pods can cost at most, each of
    /// them: as many as are needed to hold it.
    ///
    /// Chunks of the nodes themselves are to move into the same spare room, or, if they are `provided` for, are not looked at. Where rules
    /// other than resources count, the answer is no.
    pub(crate) fn spares_chunks(&self, nodes: &BTreeSet<usize>, provided: bool) -> bool {
        let pods: Vec<Group<'a>> = self.load(nodes).into_iter().filter(|group| !group.is_virtual()).collect();
        if pods.is_empty() {
            return true;
        }
        let none = BTreeSet::new();
        let mut rooms: Vec<Room<'a>> =
            self.rooms.iter().filter(|room| takes(room, nodes, &none)).cloned().collect();
        let repelling = self.repelling(nodes);
        let has_rules = |shape| Needs::new(shape, &repelling).has_own_rules();
        let pods_have_rules = pods.iter().any(|pod| has_rules(pod.shape));
        let own =
            self.rooms.iter().filter(|room| !provided && room.node.is_some_and(|at| nodes.contains(&at)));
        for (at, count) in own.flat_map(|room| &room.placed) {
            let Some(group) = self.groups.get(*at).filter(|group| group.is_virtual()) else { continue };
            let (needs, mut left) = (Needs::new(group.shape, &repelling), *count);
            for room in &mut rooms {
                left -= room.place(*at, &needs, left, &mut Outcome::default());
            }
            if left > 0 {
                return false;
            }
        }
        for (at, group) in self.groups.iter().enumerate().filter(|(_, group)| group.is_virtual()) {
            let placed = rooms.iter().flat_map(|room| &room.placed).filter(|(of, _)| *of == at);
            let placed: u64 = placed.map(|(_, count)| *count).sum();
            if placed == 0 {
                continue;
            }
            if pods_have_rules || has_rules(group.shape) {
                return false;
            }
            let cost = pods.iter().map(|pod| {
                let chunks = amounts::needed(&group.shape.requests, &pod.shape.requests);
                pod.count.saturating_mul(chunks)
            });
            // whether it is a chunk's own room that they take, or spare room
            let mut left = cost.fold(0, u64::saturating_add);
            let needs = Needs::new(group.shape, &repelling);
            for room in &mut rooms {
                left -= room.place(at, &needs, left, &mut Outcome::default());
            }
            if left > 0 {
                return false;
            }
        }
        true
    }

    /// What pods that stay keep others away from, if `nodes` go.
    fn repelling(&self, nodes: &BTreeSet<usize>) -> Vec<Repelling<'a>> {
        if !self.repelling {
            return Vec::new();
        }
        let mut leaving = self.leaving.nodes.clone();
        leaving.iter_mut().enumerate().for_each(|(at, leaves)| *leaves |= nodes.contains(&at));
        place::repelling(self.index, &Leaving { nodes: leaving, claims: Vec::new() })
    }

    /// What is on the nodes: chunks first, as the next plan will place them before it looks at the pods.
    fn load(&self, nodes: &BTreeSet<usize>) -> Vec<Group<'a>> {
        let views = nodes.iter().filter_map(|at| self.index.nodes.get(*at));
        let running = views.flat_map(|view| {
            view.pods.iter().copied().filter(|pod| !pod.daemon && !pod.mirror && !pod.deleting)
        });
        let rooms = self.rooms.iter().filter(|room| room.node.is_some_and(|at| nodes.contains(&at)));
        let (mut pods, mut chunks): (Vec<&'a Pod>, Vec<_>) = (running.collect(), Vec::new());
        for (group, count) in rooms.flat_map(|room| &room.placed) {
            let Some(group) = self.groups.get(*group) else { continue };
            match &group.source {
                Source::Pods(waiting) => {
                    pods.extend(waiting.iter().take(usize::try_from(*count).unwrap_or(usize::MAX)));
                }
                Source::Buffers(_) => chunks.push((0, group.shape, *count)),
            }
        }
        let mut groups = grouped(pods.into_iter(), chunks.into_iter(), &mut self.keys.borrow_mut());
        groups.sort_by_key(|group| !group.is_virtual());
        groups
    }
}

fn takes(room: &Room<'_>, without: &BTreeSet<usize>, also: &BTreeSet<usize>) -> bool {
    let stays = room.node.is_none_or(|at| !without.contains(&at));
    stays && (room.standing == Standing::Ready || room.claim.is_some_and(|at| also.contains(&at)))
}
