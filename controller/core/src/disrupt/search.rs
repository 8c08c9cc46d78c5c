//! Looks for nodes that have drifted, and for nodes that cost more than they have to.
//!
//! Source: reference A14. In this order, and at most one of them acts: drifted nodes that are empty, drifted nodes, several
//! underutilised nodes for nothing or one, several for at most one new one, one for one. A consolidation's purchase is sure to cost less than what it replaces,
//! whichever of its offerings is bought. Unlike Karpenter's, nodes that carry nothing but chunks are consolidated too: what is too big for a buffer
//! that has shrunk gets smaller.

use std::{cmp::Ordering, collections::BTreeSet};

use buffer_api::{conditions, karpenter::DisruptionReason, labels};

use super::{Disruption, Member, Use, candidate, drift, quiet, what_if::Answer};
use crate::{
    claims::{Market, Purchase, REPLACES},
    place::Daemon,
    plan::NewClaim,
};

/// Nodes that are looked at together at most.
const TOGETHER: usize = 100;
/// A spot instance is replaced by a cheaper one only if so many types will do: else the cheapest ones, which are taken away first, are bought over and over.
const SPOT_TYPES: usize = 15;

/// Whether a search might find something.
pub(super) fn has_candidates(disruption: &mut Disruption<'_, '_>) -> bool {
    let members: Vec<Member<'_>> = disruption.members().collect();
    members.into_iter().any(|member| disruption.reason(member).is_some())
}

/// Looks for the first thing that can be done better, and begins to do it.
pub(super) fn search(disruption: &mut Disruption<'_, '_>) {
    let daemons = Daemon::all(&disruption.index.daemons);
    let market = Market::new(disruption.index, disruption.leaving, &daemons);
    if !replace_drifted(disruption, &market) {
        consolidate(disruption, &market);
    }
}

/// Whether something was begun.
fn replace_drifted<'a>(disruption: &mut Disruption<'_, 'a>, market: &Market<'a>) -> bool {
    let mut drifted: Vec<Member<'a>> = disruption
        .members()
        .filter(|member| member.view.node.ready && !disruption.was_tried(*member))
        .filter(|member| drift::drifted(disruption.index, member.claim).is_some())
        .collect();
    drifted.sort_by_key(|member| (disruption.has_load(*member), member.claim.claim.created));
    let mut chosen: Vec<Member<'a>> = Vec::new();
    for member in drifted {
        let Member { view, claim, pool, .. } = member;
        if let Some(why) = candidate::blocker(disruption.index, view, claim, DisruptionReason::Drifted) {
            disruption.tell(member, conditions::DISRUPTION_BLOCKED_EVENT, &why);
            continue;
        }
        let of_pool = chosen.iter().filter(|other| other.pool == pool).count();
        if disruption.budgets.left(pool, DisruptionReason::Drifted) > of_pool {
            chosen.push(member);
        }
    }
    let empty = chosen.iter().take_while(|member| !disruption.has_load(**member)).count();
    if empty > 0 {
        for member in chosen.into_iter().take(empty) {
            disruption.mark(member);
        }
        return true;
    }
    let all = set(&chosen);
    if chosen.len() > 1
        && let answer @ (Answer::Fits | Answer::Buys(_)) =
            disruption.what_if().without(&all, &BTreeSet::new(), Some(market.clone()))
        && begin(disruption, &chosen, answer)
    {
        return true;
    }
    for member in chosen {
        match disruption.what_if().without(&set(&[member]), &BTreeSet::new(), Some(market.clone())) {
            Answer::Fails(why) => disruption.tell(member, conditions::DISRUPTION_BLOCKED_EVENT, &why),
            answer => {
                if begin(disruption, &[member], answer) {
                    return true;
                }
            }
        }
    }
    false
}

/// A node that may be consolidated, with its price.
#[derive(Clone, Copy)]
struct Priced<'a> {
    member: Member<'a>,
    price: f64,
    /// What is saved for each pod that has to move.
    gain: f64,
}

fn consolidate<'a>(disruption: &mut Disruption<'_, 'a>, market: &Market<'a>) {
    let candidates = candidates(disruption);
    let few = candidates.get(..candidates.len().min(TOGETHER)).unwrap_or_default();
    // what needs nothing new first
    let fits = |disruption: &Disruption<'_, 'a>, some: &[Priced<'a>]| {
        let (what_if, nodes) = (disruption.what_if(), set(&members(some)));
        let answer = what_if.without(&nodes, &BTreeSet::new(), None);
        (matches!(answer, Answer::Fits) && what_if.spares_chunks(&nodes, false)).then_some(answer)
    };
    let buys = |disruption: &Disruption<'_, 'a>, some: &[Priced<'a>]| better(disruption, market, some);
    let singly = || candidates.chunks(1);
    let _ = most(disruption, few, 2, fits)
        || singly().any(|one| most(disruption, one, 1, fits))
        || most(disruption, few, 2, buys)
        || singly().any(|one| most(disruption, one, 1, buys));
}

/// Begins with the largest number of the first nodes, from `least` on, for which there is an answer. Whether anything was begun.
fn most<'a>(
    disruption: &mut Disruption<'_, 'a>,
    nodes: &[Priced<'a>],
    least: usize,
    answer: impl Fn(&Disruption<'_, 'a>, &[Priced<'a>]) -> Option<Answer<'a>>,
) -> bool {
    let (mut least, mut most, mut found) = (least, nodes.len(), None);
    while least <= most {
        let middle = least.midpoint(most);
        match nodes.get(..middle).and_then(|some| Some((some, answer(disruption, some)?))) {
            Some(answer) => {
                found = Some(answer);
                least = middle + 1;
            }
            None => most = middle - 1,
        }
    }
    found.is_some_and(|(some, answer)| begin(disruption, &members(some), answer))
}

/// The nodes that the budgets let go, those first whose pods are worth moving most.
fn candidates<'a>(disruption: &mut Disruption<'_, 'a>) -> Vec<Priced<'a>> {
    let reason = DisruptionReason::Underutilized;
    let mut all = Vec::new();
    let members: Vec<Member<'a>> = disruption.members().collect();
    for member in members {
        let Member { view, claim, .. } = member;
        let may_go = view.node.ready
            && !disruption.was_tried(member)
            && disruption.has_load(member)
            && quiet::when_underutilized(disruption.index, claim)
            && candidate::is_quiet(disruption.index, claim, disruption.draft)
            && candidate::blocker(disruption.index, view, claim, reason).is_none();
        if let Some(price) = candidate::price(disruption.index, claim, view).filter(|_| may_go) {
            let pods = u32::try_from(view.reschedulable().count()).unwrap_or(u32::MAX);
            all.push(Priced { member, price, gain: price / (1.0 + f64::from(pods)) });
        }
    }
    all.sort_by(|one, two| match two.gain.total_cmp(&one.gain) {
        Ordering::Equal => one.member.view.node.name.cmp(&two.member.view.node.name),
        order => order,
    });
    let mut taken = vec![0_usize; disruption.index.pools.len()];
    all.retain(|one| {
        let pool = one.member.pool;
        let fits = taken.get(pool).is_some_and(|taken| disruption.budgets.left(pool, reason) > *taken);
        taken.iter_mut().skip(pool).take(usize::from(fits)).for_each(|taken| *taken += 1);
        fits
    });
    all
}

/// One new node for the load of nodes that go, where it costs less than they do.
fn better<'a>(
    disruption: &Disruption<'_, 'a>,
    market: &Market<'a>,
    nodes: &[Priced<'a>],
) -> Option<Answer<'a>> {
    let price = nodes.iter().map(|one| one.price).sum();
    let set = set(&members(nodes));
    let what_if = disruption.what_if();
    // where not everything that could be bought is cheaper, spot instances alone may be
    [None, Some("spot")].into_iter().find_map(|capacity_type| {
        let market = market.clone().below(price, capacity_type);
        // pods may go where their chunks are to go: so there must be room for both
        let answer = if what_if.is_mixed(&set) {
            what_if.anew(&set, market)
        } else {
            what_if.without(&set, &BTreeSet::new(), Some(market))
        };
        match answer {
            Answer::Buys(purchase) if may_replace(nodes, &purchase) && what_if.spares_chunks(&set, true) => {
                Some(Answer::Buys(purchase))
            }
            _ => None,
        }
    })
}

fn may_replace(nodes: &[Priced<'_>], purchase: &Purchase<'_>) -> bool {
    let may_be_spot = |claim: &NewClaim| {
        let mut all = claim.spec.requirements.iter();
        all.any(|own| own.key == labels::CAPACITY_TYPE && own.values.iter().any(|value| value == "spot"))
    };
    let spot_for_spot = nodes.iter().all(|one| candidate::is_spot(one.member.claim))
        && purchase.claims.iter().any(may_be_spot);
    purchase.claims.len() == 1 && (!spot_for_spot || purchase.fewest_types >= SPOT_TYPES)
}

/// Marks nodes whose load fits elsewhere, or buys what is needed first. Whether anything was begun.
fn begin<'a>(disruption: &mut Disruption<'_, 'a>, nodes: &[Member<'a>], answer: Answer<'a>) -> bool {
    match answer {
        Answer::Fits => {
            let can_go = disruption.has_place_without(&set(nodes), Vec::new());
            if can_go {
                for member in nodes {
                    disruption.mark(*member);
                }
            }
            can_go
        }
        Answer::Buys(purchase) => {
            // what is bought must be of use once it is there
            if !disruption.has_place_without(&set(nodes), purchase.rooms) {
                return false;
            }
            let uids: Vec<&str> = nodes.iter().map(|member| member.claim.claim.uid.as_str()).collect();
            let replaces = uids.join(",");
            for mut claim in purchase.claims {
                claim.annotations.insert(REPLACES.to_owned(), replaces.clone());
                disruption.draft.plan.create.push(claim);
            }
            true
        }
        Answer::Fails(_) => false,
    }
}

impl Disruption<'_, '_> {
    /// Whether the node was marked or replaced lately, and came to stay after all.
    fn was_tried(&self, member: Member<'_>) -> bool {
        self.index.tried.contains(&member.claim.claim.uid)
    }

    /// Whether pods or chunks are on a node.
    fn has_load(&self, member: Member<'_>) -> bool {
        self.uses[member.at] != Use::Nothing || member.view.reschedulable().next().is_some()
    }
}

fn set(members: &[Member<'_>]) -> BTreeSet<usize> {
    members.iter().map(|member| member.at).collect()
}

fn members<'a>(nodes: &[Priced<'a>]) -> Vec<Member<'a>> {
    nodes.iter().map(|one| one.member).collect()
}
