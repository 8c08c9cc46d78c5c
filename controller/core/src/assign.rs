//! Where everything goes: onto what there is, and onto what is bought for the rest.
//!
//! Each claim first takes what it was bought for, then everything goes where it first fits. So what was planned once fits in every later plan, however
//! its claims come to be sorted, and a node that was bought is not found superfluous as soon as it is there. Plain first fit
//! is used where that leaves fewer real pods without room (the scheduler puts those where it finds room first) or buys less.

use crate::{
    claims::Market,
    demand::Group,
    fit::Needs,
    index::Index,
    lifecycle::Leaving,
    place::{self, Daemon, Outcome, Placement, Room},
    plan::NewClaim,
};

/// Where everything goes.
#[derive(Debug)]
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
    let daemons = Daemon::all(&index.daemons);
    let repelling = place::repelling(index, leaving);
    let needs: Vec<Needs<'_>> = groups.iter().map(|group| Needs::new(group.shape, &repelling)).collect();
    let rooms = place::rooms(index, leaving, &daemons);
    let market = Market::new(index, leaving, &daemons);

    if !rooms.iter().any(Room::remembers) {
        return complete(place::place(rooms, groups, &needs, false), groups, &needs, market);
    }
    let spare = (rooms.clone(), market.clone());
    let as_bought = complete(place::place(rooms, groups, &needs, true), groups, &needs, market);
    let cost = |assignment: &Assignment<'_>| (assignment.without_room, assignment.create.len());
    if cost(&as_bought) == (0, 0) {
        return as_bought;
    }
    let first_fit = complete(place::place(spare.0, groups, &needs, false), groups, &needs, spare.1);
    if cost(&as_bought) <= cost(&first_fit) { as_bought } else { first_fit }
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
