//! Who may go, and what has to be there first.
//!
//! Two phases for everything. First a node that can go is marked (taint `karpenter.sh/disrupted:NoSchedule`). When the snapshot shows the mark and the
//! node can go still, its claim is deleted (a plan that marks asks to be called again at once); if not, the mark is taken off. So no pod can slip in between
//! the decision and the deletion. Source: design 6, reference A13–A15.
//!
//! * **Empty**: no pod that would have to move runs there, and this very plan has placed nothing there, pods or chunks.
//! * **Drifted**, **Underutilized**: all that is on the node fits elsewhere ([`what_if`]). If something has to be bought for that, it is bought first
//!   ([`search`]): the new claim names the ones that it replaces, which stay as they are until it takes pods, so that a buffer has its room
//!   throughout. Once it does, they are marked like any other.
//!
//! Nothing is remembered but what stands in the API: marks, the new claims' annotation, conditions. So each plan asks the whole question anew, and a
//! replacement that makes no sense any more is an empty node like any other.

pub(crate) mod budget;
mod candidate;
pub(crate) mod drift;
pub(crate) mod quiet;
mod search;
mod what_if;

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
};

use buffer_api::{conditions, karpenter::DisruptionReason, labels::DISRUPTED_TAINT};
use k8s_openapi::api::core::v1::Taint;

use crate::{
    assign::{Assignment, assign_if},
    claims::REPLACES,
    demand::{self, Group, Source},
    disrupt::{
        budget::Budgets,
        what_if::{Answer, WhatIf},
    },
    fit::Needs,
    index::{ClaimView, Index, NodeView},
    lifecycle::Leaving,
    place::{Outcome, Room},
    plan::{DeleteClaim, DeleteReason, Draft, Event, EventObject},
};

/// The taint that marks a node for removal.
#[must_use]
pub fn mark() -> Taint {
    Taint { key: DISRUPTED_TAINT.to_owned(), effect: "NoSchedule".to_owned(), value: None, time_added: None }
}

/// Rooms, times groups, that one plan goes through at most to find out what would be if some nodes were marked.
const MOST_WORK: usize = 200_000;

/// What this plan placed on a node.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Use {
    /// Nothing.
    #[default]
    Nothing,
    /// Chunks of buffers only.
    Chunks,
    /// Real pods too.
    Pods,
}

/// Marks, unmarks, deletes and replaces. With `search`, and all at rest, it looks for nodes that have drifted or are underutilised.
pub(crate) fn disrupt<'a>(
    index: &'a Index<'a>,
    leaving: &Leaving,
    assignment: &Assignment<'a>,
    groups: &[Group<'a>],
    search: bool,
    draft: &mut Draft,
) {
    let moving = demand::moving(index, &leaving.nodes);
    if let Some(time) = moving.until {
        draft.wake(time);
    }
    let mut uses = uses(index.nodes.len(), &assignment.rooms, groups);
    expect(&mut uses, &assignment.rooms, &moving.new);
    let mut disruption = Disruption {
        index,
        leaving,
        assignment,
        groups,
        uses,
        budgets: Budgets::new(index, leaving),
        draft,
        acted: false,
        work: Cell::new(0),
    };
    if moving.ending {
        disruption.take_back();
        return;
    }
    let replacements = disruption.replace();
    let marked = disruption.remove_empty(&replacements);
    disruption.finish(&marked);
    if moving.new.is_empty() && disruption.is_at_rest() {
        if search {
            search::search(&mut disruption);
        } else {
            disruption.draft.plan.search = search::has_candidates(&mut disruption);
        }
    }
    if let Some(time) = disruption.budgets.next_change() {
        disruption.draft.wake(time);
    }
}

/// One plan's disruptions in the making.
struct Disruption<'p, 'a> {
    index: &'a Index<'a>,
    leaving: &'p Leaving,
    assignment: &'p Assignment<'a>,
    groups: &'p [Group<'a>],
    /// By node.
    uses: Vec<Use>,
    budgets: Budgets<'a>,
    draft: &'p mut Draft,
    /// Something is marked, replaced or deleted.
    acted: bool,
    /// What [`Disruption::has_place_without`] has reckoned through.
    work: Cell<usize>,
}

/// An initialised node of a pool, with its claim.
#[derive(Clone, Copy)]
struct Member<'a> {
    at: usize,
    view: &'a NodeView<'a>,
    claim: &'a ClaimView<'a>,
    pool: usize,
}

impl<'a> Disruption<'_, 'a> {
    /// The initialised nodes of all pools that do not leave, by name.
    fn members(&self) -> impl Iterator<Item = Member<'a>> + use<'_, 'a> {
        let nodes = self.index.nodes.iter().enumerate();
        nodes.filter(|(at, _)| !self.leaving.nodes[*at]).filter_map(|(at, _)| self.member(at))
    }

    fn member(&self, at: usize) -> Option<Member<'a>> {
        let index = self.index;
        let view = index.nodes.get(at).filter(|view| view.initialized)?;
        let claim = index.claim_of(view)?;
        Some(Member { at, view, claim, pool: claim.pool? })
    }

    fn what_if(&self) -> WhatIf<'_, 'a> {
        WhatIf::new(self.index, self.leaving, self.assignment, self.groups)
    }

    /// Why a node that is not empty may go, if it may.
    fn reason(&mut self, member: Member<'a>) -> Option<DisruptionReason> {
        candidate::reason(self.index, member.view, member.claim, self.draft)
    }

    /// Whether all has its place, and as good a one as now, when `nodes` go and what is `to_come` is there: asked as the plan will ask that sees them go,
    /// so that it finds nothing to buy. With more to reckon than [`MOST_WORK`] the answer is no.
    fn has_place_without(&self, nodes: &BTreeSet<usize>, to_come: Vec<Room<'a>>) -> bool {
        let rooms = self.assignment.rooms.len().saturating_mul(self.groups.len().saturating_add(1));
        self.work.set(self.work.get().saturating_add(rooms));
        if self.work.get() > MOST_WORK.max(rooms) {
            return false;
        }
        let going = |at: &usize| nodes.contains(at);
        let leaving = Leaving {
            nodes: self.leaving.nodes.iter().enumerate().map(|(at, leaves)| *leaves || going(&at)).collect(),
            claims: self
                .leaving
                .claims
                .iter()
                .zip(&self.index.claims)
                .map(|(leaves, view)| *leaves || view.node.as_ref().is_some_and(going))
                .collect(),
        };
        let chunks = self.groups.iter().filter_map(|group| match &group.source {
            Source::Buffers(members) => Some(members.iter().map(|(at, count)| (*at, group.shape, *count))),
            Source::Pods(_) => None,
        });
        let groups = demand::demand(self.index, &leaving.nodes, chunks.flatten());
        let before = |key: &str| {
            let mut all = self.groups.iter().zip(&self.assignment.outcomes);
            all.find(|(group, _)| group.key == key).map(|(_, outcome)| outcome.clone()).unwrap_or_default()
        };
        let after = assign_if(self.index, &leaving, &groups, &BTreeSet::new(), to_come);
        let as_good = groups.iter().zip(&after.outcomes).all(|(group, after)| {
            let before = before(&group.key);
            after.coming <= before.coming && after.failed <= before.failed
        });
        as_good && after.create.is_empty()
    }

    fn mark(&mut self, member: Member<'a>) {
        self.draft.node(&member.view.node.name).add_taints.push(mark());
        self.draft.wake(self.index.now);
        self.budgets.take(member.pool);
        self.acted = true;
    }

    fn unmark(&mut self, member: Member<'a>) {
        let taint = mark();
        self.draft.node(&member.view.node.name).remove_taints.push((taint.key, taint.effect));
        self.draft.wake(self.index.now);
        self.acted = true;
    }

    fn delete(&mut self, member: Member<'a>, reason: DeleteReason) {
        let message = format!("Node \"{}\" is removed: {}", member.view.node.name, reason.name());
        self.tell(member, conditions::DISRUPTION_TERMINATING_EVENT, &message);
        self.draft.plan.delete.push(DeleteClaim { name: member.claim.claim.name.clone(), reason });
        self.acted = true;
    }

    /// An event on a node and its claim.
    fn tell(&mut self, member: Member<'a>, reason: &'static str, message: &str) {
        let (node, claim) = (member.view.node, member.claim.claim);
        let about = [
            EventObject::Node(node.name.clone(), node.uid.clone()),
            EventObject::Claim(claim.name.clone(), claim.uid.clone()),
        ];
        let events = about.map(|about| Event { about, reason, message: message.to_owned(), warning: false });
        self.draft.plan.events.extend(events);
    }

    /// Takes the marks off nodes that something was placed on.
    fn take_back(&mut self) {
        let members: Vec<Member<'a>> = self.members().collect();
        for member in members {
            if member.view.has_taint(DISRUPTED_TAINT) && self.uses[member.at] != Use::Nothing {
                self.unmark(member);
            }
        }
    }

    /// Marks what is replaced once its replacement takes pods. Returns the claims that replace something still.
    fn replace(&mut self) -> BTreeSet<usize> {
        let by_uid: BTreeMap<&str, usize> =
            self.index.claims.iter().enumerate().map(|(at, view)| (view.claim.uid.as_str(), at)).collect();
        let mut all: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        for (at, view) in self.index.claims.iter().enumerate().filter(|(at, _)| !self.leaving.claims[*at]) {
            if let Some(uids) = view.claim.annotations.get(REPLACES) {
                all.entry(uids).or_default().insert(at);
            }
        }
        let mut kept = BTreeSet::new();
        for (uids, new) in all {
            let old: BTreeSet<usize> = uids.split(',').filter_map(|uid| by_uid.get(uid).copied()).collect();
            if self.replace_these(&old, &new) {
                kept.extend(new);
            }
        }
        kept
    }

    /// Whether the claims `new` are needed still in place of the claims `old`.
    fn replace_these(&mut self, old: &BTreeSet<usize>, new: &BTreeSet<usize>) -> bool {
        if old.iter().any(|at| self.leaving.claims[*at]) {
            return true;
        }
        let members: Vec<Member<'a>> = old
            .iter()
            .filter_map(|at| self.index.claims.get(*at)?.node)
            .filter_map(|node| self.member(node))
            .collect();
        if members.is_empty() || members.len() < old.len() {
            return false;
        }
        let mut needed: BTreeMap<(usize, DisruptionReason), usize> = BTreeMap::new();
        for member in &members {
            let Some(reason) = self.reason(*member) else { return false };
            *needed.entry((member.pool, reason)).or_default() += 1;
        }
        if members.iter().any(|member| member.view.has_taint(DISRUPTED_TAINT)) {
            return true;
        }
        let nodes: BTreeSet<usize> = members.iter().map(|member| member.at).collect();
        let arrived = new.iter().all(|at| {
            let node = self.index.claims.get(*at).and_then(|claim| self.index.node_of(claim));
            node.is_some_and(|node| node.initialized && node.node.ready)
        });
        if !arrived {
            return matches!(self.what_if().without(&nodes, new, None), Answer::Fits);
        }
        let drifted = needed.keys().any(|(_, reason)| *reason == DisruptionReason::Drifted);
        // without need, no buffer may lose its room
        let spares = drifted || self.what_if().spares_chunks(&nodes, true);
        if !spares || !self.has_place_without(&nodes, Vec::new()) {
            return false;
        }
        if needed.into_iter().all(|((pool, reason), count)| self.budgets.left(pool, reason) >= count) {
            for member in members {
                self.mark(member);
            }
        }
        true
    }

    /// Marks nodes that nothing needs, deletes those that are marked already. Returns the marked nodes that something needs.
    fn remove_empty(&mut self, replacements: &BTreeSet<usize>) -> Vec<Member<'a>> {
        let mut others = Vec::new();
        let members: Vec<Member<'a>> = self.members().collect();
        for member in members {
            let marked = member.view.has_taint(DISRUPTED_TAINT);
            let quiet = self.is_empty(member);
            let purpose = self.uses[member.at];
            if quiet && purpose == Use::Nothing {
                if marked {
                    self.delete(member, DeleteReason::Empty);
                } else if !member.view.claim.is_some_and(|claim| replacements.contains(&claim)) {
                    self.mark_empty(member);
                }
                continue;
            }
            if marked {
                others.push(member);
            } else if quiet && purpose == Use::Chunks {
                let message = conditions::has_buffer_pods(&member.view.node.name);
                self.tell(member, conditions::UNCONSOLIDATABLE_EVENT, &message);
            }
        }
        others
    }

    /// Whether a node runs nothing and may go as far as its own state and the pool's rules say, budgets apart.
    fn is_empty(&mut self, member: Member<'a>) -> bool {
        let Member { view, claim, .. } = member;
        view.reschedulable().next().is_none()
            && candidate::blocker(self.index, view, claim, DisruptionReason::Empty).is_none()
            && candidate::is_quiet(self.index, claim, self.draft)
    }

    fn mark_empty(&mut self, member: Member<'a>) {
        let reason = DisruptionReason::Empty;
        // A node that is silent is counted as away already.
        let silent = !member.view.node.ready && self.budgets.allows_any(member.pool, reason);
        if silent || self.budgets.left(member.pool, reason) > 0 {
            self.mark(member);
        }
    }

    /// Deletes marked nodes that can go with all that is on them; if they can't, takes their marks off.
    fn finish(&mut self, marked: &[Member<'a>]) {
        let mut reasons = Vec::new();
        for member in marked {
            reasons.extend(self.reason(*member));
        }
        let nodes: BTreeSet<usize> = marked.iter().map(|member| member.at).collect();
        let placed = marked.iter().any(|member| self.uses[member.at] != Use::Nothing);
        let can_go = !placed && reasons.len() == marked.len() && self.has_place_without(&nodes, Vec::new());
        for (at, member) in marked.iter().enumerate() {
            match reasons.get(at) {
                Some(DisruptionReason::Drifted) if can_go => self.delete(*member, DeleteReason::Drifted),
                Some(_) if can_go => self.delete(*member, DeleteReason::Underutilized),
                _ => self.unmark(*member),
            }
        }
    }

    /// Whether nothing is on its way: no claim, no removal, no demand without a place that could come.
    fn is_at_rest(&self) -> bool {
        let arrived = |view: &ClaimView<'_>| self.index.node_of(view).is_some_and(|node| node.initialized);
        !self.acted
            && self.assignment.create.is_empty()
            && self.assignment.outcomes.iter().all(|outcome| outcome.coming == 0)
            && !self.leaving.nodes.iter().any(|leaves| *leaves)
            && !self.leaving.claims.iter().any(|leaves| *leaves)
            && self.index.claims.iter().all(arrived)
    }
}

fn uses(nodes: usize, rooms: &[Room<'_>], groups: &[Group<'_>]) -> Vec<Use> {
    let mut uses = vec![Use::Nothing; nodes];
    for room in rooms {
        let Some(purpose) = room.node.and_then(|at| uses.get_mut(at)) else { continue };
        for (group, _) in &room.placed {
            if groups.get(*group).is_some_and(Group::is_virtual) {
                if *purpose == Use::Nothing {
                    *purpose = Use::Chunks;
                }
            } else {
                *purpose = Use::Pods;
            }
        }
    }
    uses
}

/// Keeps a place for pods that nobody counts on, but that will want one in a moment.
fn expect<'a>(uses: &mut [Use], rooms: &[Room<'a>], moving: &[Group<'a>]) {
    let mut changed: BTreeMap<usize, Room<'a>> = BTreeMap::new();
    for (at, group) in moving.iter().enumerate() {
        let needs = Needs::new(group.shape, &[]);
        let mut left = group.count;
        for (number, room) in rooms.iter().enumerate() {
            if left == 0 {
                break;
            }
            let copies = changed.get(&number).unwrap_or(room).copies(&needs).min(left);
            if copies > 0 {
                let room = changed.entry(number).or_insert_with(|| room.clone());
                left -= room.place(at, &needs, copies, &mut Outcome::default());
                if let Some(purpose) = room.node.and_then(|node| uses.get_mut(node)) {
                    *purpose = Use::Pods;
                }
            }
        }
    }
}
