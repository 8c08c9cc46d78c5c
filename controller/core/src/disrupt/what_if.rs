//! What if some nodes went: does all that is on them, pods and chunks, fit elsewhere, and what would have to be bought?
//!
//! Everything else stays where the plan has put it, so an answer costs no more than the nodes in question and the rooms that are
//! looked through; nothing is rebuilt. Source: reference A14 ("Simulation"), with the chunks of buffers as first-class load.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    assign::Assignment,
    claims::{Market, Purchase},
    demand::{Group, Keys, Source, grouped},
    fit::{self, Needs},
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
pub(crate) enum Answer {
    /// All of it fits on what there is.
    Fits,
    /// It fits if this is bought.
    Buys(Purchase),
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
    ) -> Answer {
        let repelling = if self.repelling {
            let mut leaving = self.leaving.nodes.clone();
            leaving.iter_mut().enumerate().for_each(|(at, leaves)| *leaves |= nodes.contains(&at));
            place::repelling(self.index, &Leaving { nodes: leaving, claims: Vec::new() })
        } else {
            Vec::new()
        };
        let mut changed: BTreeMap<usize, Room<'a>> = BTreeMap::new();
        let mut bought = market;
        let mut purchase = false;
        for (at, group) in self.load(nodes).iter().enumerate() {
            let needs = Needs::new(group.shape, &repelling);
            let mut left = group.count;
            for (number, room) in self.rooms.iter().enumerate().filter(|(_, room)| takes(room, nodes, also)) {
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
            match &mut bought {
                Some(market) => market.buy(group, &needs, left, &mut outcome),
                None => return Answer::Fails("what runs on it does not fit elsewhere".to_owned()),
            }
            if outcome.failed > 0 {
                return Answer::Fails(outcome.reason.unwrap_or_default());
            }
            purchase = true;
        }
        match bought.filter(|_| purchase) {
            Some(market) => Answer::Buys(market.into_purchase()),
            None => Answer::Fits,
        }
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
