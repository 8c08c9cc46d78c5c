//! Where everything goes: onto what there is, and onto what is bought for the rest.
//!
//! Each claim first takes what it was bought for, then everything goes where it first fits. So what was planned once fits in every later plan, however
//! its claims come to be sorted, and a node that was bought is not found superfluous as soon as it is there. Where that buys
//! something, forgetting what older claims were bought for may be better, in particular for real pods, which the scheduler puts
//! where it finds room first. The plan that buys least is taken, and of those the one that leaves the fewest real pods without
//! room. The next plan can do the same again, with the new claims as they were bought, and so never buys more.

use std::collections::BTreeSet;

use crate::{
    claims::Market,
    demand::Group,
    fit::Needs,
    index::Index,
    lifecycle::Leaving,
    place::{self, Daemon, Outcome, Placement, Room},
    plan::NewClaim,
};

/// How many purchases that are on their way are looked at one by one.
const LATEST: usize = 3;

/// Where everything goes.
#[derive(Debug, Default)]
pub(crate) struct Assignment<'a> {
    pub(crate) rooms: Vec<Room<'a>>,
    /// By group.
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) create: Vec<NewClaim>,
    /// Real pods that found no room on what there is.
    without_room: u64,
}

/// Assigns all groups, in their order.
pub(crate) fn assign<'a>(index: &'a Index<'a>, leaving: &Leaving, groups: &[Group<'a>]) -> Assignment<'a> {
    assign_if(index, leaving, groups, &BTreeSet::new(), Vec::new())
}

/// The same, if the nodes `to_go` were marked for removal and the rooms `to_come` were there.
pub(crate) fn assign_if<'a>(
    index: &'a Index<'a>,
    leaving: &Leaving,
    groups: &[Group<'a>],
    to_go: &BTreeSet<usize>,
    to_come: Vec<Room<'a>>,
) -> Assignment<'a> {
    let daemons = Daemon::all(&index.daemons);
    let repelling = place::repelling(index, leaving);
    let needs: Vec<Needs<'_>> = groups.iter().map(|group| Needs::new(group.shape, &repelling)).collect();
    let rooms = place::rooms(index, leaving, &daemons, to_go, to_come);
    let market = Market::new(index, leaving, &daemons);

    let since = if groups.len() > 1 { memories(&rooms) } else { BTreeSet::from([0]) };
    let cost = |assignment: &Assignment<'_>| (assignment.create.len(), assignment.without_room);
    let mut best: Option<Assignment<'a>> = None;
    for since in since {
        let placement = place::place(rooms.clone(), groups, &needs, since);
        let assignment = complete(placement, groups, &needs, market.clone());
        if best.as_ref().is_none_or(|best| cost(&assignment) < cost(best)) {
            best = Some(assignment);
        }
        if best.as_ref().is_some_and(|best| cost(best) == (0, 0)) {
            break;
        }
    }
    best.unwrap_or_default()
}

/// From which purchase on to remember what claims were bought for: all, the last ones that are on their way, or none.
fn memories(rooms: &[Room<'_>]) -> BTreeSet<u64> {
    let coming: BTreeSet<u64> = rooms.iter().filter_map(Room::coming_from).collect();
    let mut since: BTreeSet<u64> = coming.into_iter().rev().take(LATEST).collect();
    since.insert(u64::MAX);
    if rooms.iter().any(Room::remembers) {
        since.insert(0);
    }
    since
}

/// Buys for what found no room.
fn complete<'a>(
    placement: Placement<'a>,
    groups: &[Group<'a>],
    needs: &[Needs<'a>],
    mut market: Market<'a>,
) -> Assignment<'a> {
    let Placement { rooms, mut outcomes, left } = placement;
    let mut without_room = 0_u64;
    for (((group, needs), left), outcome) in groups.iter().zip(needs).zip(left).zip(&mut outcomes) {
        if !group.is_virtual() {
            without_room = without_room.saturating_add(left);
        }
        market.buy(group, needs, left, outcome);
    }
    Assignment { rooms, outcomes, create: market.into_claims(), without_room }
}
