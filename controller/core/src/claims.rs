//! What to buy: new NodeClaims for the demand that has no place.
//!
//! Pools in the order of their weight. For a group the most copies that any type left over holds go on each claim; the last claim takes the rest and
//! names every type that holds it, cheapest first. Later groups may fill what earlier ones left of a planned claim.
//! Sources: reference A8 and A9 (requirements, limits, what a NodeClaim carries), design 5 (deterministic names) and 6 (200 in flight).

use std::{collections::BTreeSet, rc::Rc};

use buffer_api::{
    NodeClaimSpec, Quantity,
    karpenter::{Operator, Requirement, ResourceRequests},
    labels,
};

use crate::{
    amounts,
    demand::{Group, hash},
    expected,
    fit::{self, Needs, Term},
    index::{Index, PoolView},
    lifecycle::Leaving,
    offers::{self, Catalogue, Type},
    place::{Daemon, Outcome, Room},
    plan::NewClaim,
    requirements::{Requirements, Values},
    snapshot::{Claim, Labels, PodShape, Resources},
};

/// Claims of a pool that may be on their way to an initialised node at the same time.
pub const IN_FLIGHT: usize = 200;
/// Instance types that a claim names at most: the cheapest ones.
pub const MOST_TYPES: usize = 600;
/// Name of the limit that counts nodes.
const NODES: &str = "nodes";
/// Longest name of a claim: it becomes a host name label.
const LONGEST_NAME: usize = 63;

/// Annotation of a claim: `<number of the purchase>:<demand>=<copies>,…`, where `<demand>` is the start of a group's key.
pub const BOUGHT_FOR: &str = "karpenter.sh/bought-for";

/// Annotation of a claim: UIDs of the claims that it is to replace, with commas between (names come back).
pub const REPLACES: &str = "karpenter.sh/replaces";

/// What a claim was bought for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bought {
    /// Number of the purchase: one more for each plan that buys; 0 if it is not known.
    pub(crate) number: u64,
    /// Short key and number of copies of each group.
    pub(crate) groups: Vec<(String, u64)>,
}

impl Bought {
    /// Reads it from a claim. What can't be read says nothing.
    pub(crate) fn new(claim: &Claim) -> Self {
        let text = claim.annotations.get(BOUGHT_FOR).and_then(|text| text.split_once(':'));
        let Some((number, groups)) = text else { return Self::default() };
        let groups = groups.split(',').filter_map(|entry| entry.split_once('='));
        let groups = groups.filter_map(|(key, count)| Some((key.to_owned(), count.parse().ok()?))).collect();
        Self { number: number.parse().unwrap_or(0), groups }
    }

    /// How many copies of a group.
    pub(crate) fn copies(&self, group: &str) -> u64 {
        self.groups.iter().filter(|(key, _)| *key == short(group)).map(|(_, count)| *count).sum()
    }
}

/// The first ten digits of a group's key.
fn short(key: &str) -> &str {
    key.get(..10).unwrap_or(key)
}

/// Buys for one plan.
#[derive(Clone)]
pub(crate) struct Market<'a> {
    pools: Vec<Shop<'a>>,
    planned: Vec<Planned<'a>>,
    names: BTreeSet<String>,
    /// Number of this purchase.
    number: u64,
}

/// A pool that may buy.
#[derive(Clone)]
struct Shop<'a> {
    view: &'a PoolView<'a>,
    catalogue: &'a Catalogue,
    /// What all its nodes are like.
    base: Requirements,
    /// What each type's daemons take, in the order of the catalogue.
    fresh: Rc<[Fresh<'a>]>,
    /// What the limits leave; only limited resources.
    left: Resources,
    in_flight: usize,
    /// Every offering must cost less than this.
    below: Option<f64>,
}

/// A new node of one type, with its daemons.
struct Fresh<'a> {
    overhead: Resources,
    room: Resources,
    daemons: Vec<(&'a PodShape, u64)>,
}

/// A claim that this plan creates.
#[derive(Clone)]
struct Planned<'a> {
    pool: usize,
    name: String,
    requirements: Requirements,
    /// Types that hold all of it, in the order of the catalogue.
    types: Rc<Vec<usize>>,
    requests: Resources,
    pods: Vec<(&'a PodShape, u64)>,
    bought_for: Vec<(String, u64)>,
}

/// A type with the number of copies that it holds.
type Holds = (usize, u64);

impl<'a> Market<'a> {
    pub(crate) fn new(index: &'a Index<'a>, leaving: &Leaving, daemons: &[Daemon<'a>]) -> Self {
        let shops = index.pools.iter().enumerate().filter_map(|(at, view)| {
            let catalogue = view.catalogue.and_then(|at| index.catalogues.get(at))?;
            view.health.usable.then(|| Shop::new(index, at, view, catalogue, leaving, daemons))
        });
        let names = index.claim_names().into_iter().map(ToOwned::to_owned).collect();
        let numbers = index.claims.iter().map(|view| Bought::new(view.claim).number);
        let number = numbers.max().unwrap_or(0).saturating_add(1);
        Self { pools: shops.collect(), planned: Vec::new(), names, number }
    }

    /// Finds places for `count` copies of a group on claims to be created.
    pub(crate) fn buy(&mut self, group: &Group<'a>, needs: &Needs<'a>, count: u64, outcome: &mut Outcome) {
        let mut left = count;
        if let Some(reason) = needs.unsupported.filter(|_| left > 0) {
            outcome.failed += left;
            outcome.reason = Some(reason.to_owned());
            return;
        }
        for planned in &mut self.planned {
            if left == 0 {
                return;
            }
            let Some(shop) = self.pools.get(planned.pool) else { continue };
            let taken = planned.fill(shop, &group.key, needs, left);
            outcome.coming += taken;
            left -= taken;
        }
        let mut reason = "no NodePool is ready".to_owned();
        for at in 0..self.pools.len() {
            if left == 0 {
                return;
            }
            match self.open(at, group, needs, &mut left, outcome) {
                Ok(()) => {}
                Err(refusal) => reason = refusal,
            }
        }
        if left > 0 {
            outcome.failed += left;
            outcome.reason = Some(reason);
        }
    }

    /// Opens claims of one pool until nothing is left or the pool refuses.
    fn open(
        &mut self,
        at: usize,
        group: &Group<'a>,
        needs: &Needs<'a>,
        left: &mut u64,
        outcome: &mut Outcome,
    ) -> Result<(), String> {
        let Some(shop) = self.pools.get_mut(at) else { return Ok(()) };
        let pool = &shop.view.pool.name;
        if !needs.tolerates(&shop.view.pool.spec.template.spec.taints) {
            return Err(format!("did not tolerate the taints of NodePool \"{pool}\""));
        }
        let (requirements, holds) = needs
            .terms
            .iter()
            .find_map(|term| {
                let requirements = shop.narrow(&shop.base, term)?;
                let holds = shop.holds(&requirements, needs);
                (!holds.is_empty()).then_some((requirements, holds))
            })
            .ok_or_else(|| format!("no instance type of NodePool \"{pool}\" suits and holds it"))?;
        let mut slot = 0_u64;
        let mut former: Option<(u64, Rc<Vec<usize>>)> = None;
        while *left > 0 {
            if shop.in_flight >= IN_FLIGHT {
                // Not refused, only later: the next plan buys on when some have arrived.
                outcome.coming += *left;
                *left = 0;
                break;
            }
            let (count, types) = match &former {
                // Without limits all full claims are alike.
                Some((count, types)) if shop.left.is_empty() && *left >= *count => (*count, Rc::clone(types)),
                _ => shop.choose(&requirements, &holds, *left)?,
            };
            former = Some((count, Rc::clone(&types)));
            shop.charge(&types);
            let name = name(shop.view, &group.key, &mut slot, &self.names);
            self.names.insert(name.clone());
            let mut requests = Resources::new();
            amounts::add(&mut requests, &needs.shape.requests, i64::try_from(count).unwrap_or(i64::MAX));
            self.planned.push(Planned {
                pool: at,
                name,
                requirements: requirements.clone(),
                types,
                requests,
                pods: vec![(needs.shape, count)],
                bought_for: vec![(short(&group.key).to_owned(), count)],
            });
            outcome.coming += count;
            *left -= count;
        }
        Ok(())
    }

    /// Buys only what is sure to cost less than `price`, of one capacity type if that is given.
    pub(crate) fn below(mut self, price: f64, capacity_type: Option<&str>) -> Self {
        for shop in &mut self.pools {
            shop.below = Some(price);
            if let Some(only) = capacity_type {
                shop.base.and(labels::CAPACITY_TYPE, &Values::one_of([only]));
            }
        }
        self
    }

    /// The claims to create, by name.
    pub(crate) fn into_claims(self) -> Vec<NewClaim> {
        self.into_purchase().claims
    }

    /// All that was bought.
    pub(crate) fn into_purchase(self) -> Purchase<'a> {
        let pools = &self.pools;
        let shops = || self.planned.iter().filter_map(|planned| Some((planned, pools.get(planned.pool)?)));
        let fewest_types = shops().map(|(planned, _)| planned.types.len()).min().unwrap_or(0);
        let mut claims: Vec<NewClaim> =
            shops().map(|(planned, shop)| planned.to_claim(shop, self.number)).collect();
        claims.sort_by(|one, two| one.name.cmp(&two.name));
        let rooms = shops().map(|(planned, shop)| planned.to_room(shop, self.number)).collect();
        Purchase { claims, fewest_types, rooms }
    }
}

/// What was bought for one purpose.
#[derive(Debug)]
pub(crate) struct Purchase<'a> {
    /// The claims to create, by name.
    pub(crate) claims: Vec<NewClaim>,
    /// The number of instance types that the claim with the fewest can become.
    pub(crate) fewest_types: usize,
    /// The nodes that will come of it, as they will be at least.
    pub(crate) rooms: Vec<Room<'a>>,
}

impl<'a> Shop<'a> {
    fn new(
        index: &'a Index<'a>,
        at: usize,
        view: &'a PoolView<'a>,
        catalogue: &'a Catalogue,
        leaving: &Leaving,
        daemons: &[Daemon<'a>],
    ) -> Self {
        let spec = &view.pool.spec;
        let mut base = Requirements::from_api(&spec.template.spec.requirements);
        base.and_all(&Requirements::from_labels(&fixed_labels(view)));
        let claims = || index.claims.iter().enumerate().filter(move |(_, claim)| claim.pool == Some(at));
        // Whoever leaves still stands there, unless nothing was ever launched.
        let standing = claims()
            .filter(|(at, view)| !leaving.claims[*at] || view.claim.status.provider_id.is_some())
            .map(|(_, view)| view);
        // Limits that are not quantities have made the pool unusable.
        let mut left = amounts::parse(&spec.limits).unwrap_or_default();
        if !left.is_empty() {
            for claim in standing {
                let size = expected::capacity(index, claim);
                charge(&mut left, &size);
            }
        }
        let in_flight = claims()
            .filter(|(at, view)| {
                !leaving.claims[*at] && !index.node_of(view).is_some_and(|node| node.initialized)
            })
            .count();
        let mut shop = Self { view, catalogue, base, fresh: Rc::new([]), left, in_flight, below: None };
        shop.fresh = catalogue.types.iter().map(|kind| shop.fresh(kind, daemons)).collect();
        shop
    }

    fn fresh(&self, kind: &Type, daemons: &[Daemon<'a>]) -> Fresh<'a> {
        let taints = &self.view.pool.spec.template.spec.taints;
        let runs = |daemon: &&Daemon<'a>| {
            daemon.tolerates(taints)
                && daemon.needs.terms.iter().any(|term| {
                    self.narrow(&self.base, term).is_some_and(|wanted| {
                        kind.suits(&wanted, self.catalogue) && kind.buyable(&wanted).next().is_some()
                    })
                })
        };
        let mut overhead = Resources::new();
        let mut shapes = Vec::new();
        for daemon in daemons.iter().filter(runs) {
            amounts::add(&mut overhead, &daemon.needs.shape.requests, 1);
            shapes.push((daemon.needs.shape, 1));
        }
        let mut room = kind.allocatable.clone();
        amounts::subtract(&mut room, &overhead, 1);
        Fresh { overhead, room, daemons: shapes }
    }

    /// What is left of `wanted` when a pod's term is added; `None` if nothing. A label that neither the pool nor its types decide about will
    /// not be there.
    fn narrow(&self, wanted: &Requirements, term: &Term) -> Option<Requirements> {
        if !term.allows_name(None) {
            return None;
        }
        let mut narrowed = wanted.clone();
        for (key, values) in term.labels.iter() {
            if key == labels::HOSTNAME {
                if !values.allows_new() {
                    return None;
                }
            } else if self.base.get(key).is_some() || self.catalogue.decides(key) {
                narrowed.and(key, values);
            } else if !values.allows(None) {
                return None;
            }
        }
        narrowed.is_possible().then_some(narrowed)
    }

    /// Types that can be bought as `wanted`, with how many copies of the pod each holds, at least one.
    fn holds(&self, wanted: &Requirements, needs: &Needs<'_>) -> Vec<Holds> {
        let types = self.catalogue.types.iter().zip(self.fresh.iter()).enumerate();
        types
            .filter_map(|(at, (kind, fresh))| {
                let copies = amounts::copies(&fresh.room, &needs.shape.requests);
                if copies == 0 || !self.can_be(kind, wanted) {
                    return None;
                }
                let copies = copies.min(needs.room_beside(&fresh.daemons));
                (copies > 0).then_some((at, copies))
            })
            .collect()
    }

    fn can_be(&self, kind: &Type, wanted: &Requirements) -> bool {
        let mut offerings = kind.buyable(wanted).peekable();
        kind.suits(wanted, self.catalogue)
            && offerings.peek().is_some()
            && self.below.is_none_or(|price| offerings.all(|sold| sold.price < price))
    }

    /// How many copies the next claim takes, and the types that hold them.
    fn choose(
        &self,
        wanted: &Requirements,
        holds: &[Holds],
        left: u64,
    ) -> Result<(u64, Rc<Vec<usize>>), String> {
        let pool = &self.view.pool.name;
        if self.left.get(NODES).is_some_and(|nodes| *nodes < Quantity::units(1)) {
            return Err(format!("node limits have been exhausted for nodepool \"{pool}\""));
        }
        let affordable: Vec<Holds> = holds.iter().copied().filter(|(at, _)| self.affords(*at)).collect();
        let most = affordable.iter().map(|(_, copies)| *copies).max();
        let most = most
            .ok_or_else(|| format!("all available instance types exceed limits for nodepool \"{pool}\""))?;
        let count = most.min(left);
        let types: Vec<usize> =
            affordable.into_iter().filter(|(_, copies)| *copies >= count).map(|(at, _)| at).collect();
        if self.has_variety(&types, wanted) {
            Ok((count, Rc::new(types)))
        } else {
            Err(format!("the minValues of NodePool \"{pool}\" can't be met"))
        }
    }

    fn affords(&self, at: usize) -> bool {
        self.catalogue.types.get(at).is_some_and(|kind| {
            self.left
                .iter()
                .filter(|(name, _)| *name != NODES)
                .all(|(name, left)| amounts::get(&kind.capacity, name) <= *left)
        })
    }

    /// Whether enough distinct values stay possible (`minValues`), among the cheapest types that the claim will name.
    fn has_variety(&self, types: &[usize], wanted: &Requirements) -> bool {
        wanted.min_values().next().is_none() || {
            let named = self.cheapest(types, wanted);
            wanted.min_values().all(|(key, least)| offers::distinct(&named, wanted, key) >= least)
        }
    }

    /// The types by the price of their cheapest offering, at most [`MOST_TYPES`].
    fn cheapest(&self, types: &[usize], wanted: &Requirements) -> Vec<&'a Type> {
        let mut priced: Vec<(f64, &Type)> = types
            .iter()
            .filter_map(|at| self.catalogue.types.get(*at))
            .map(|kind| (kind.buyable(wanted).map(|sold| sold.price).fold(f64::INFINITY, f64::min), kind))
            .collect();
        priced
            .sort_by(|(one, kind), (two, other)| one.total_cmp(two).then_with(|| kind.name.cmp(&other.name)));
        priced.into_iter().map(|(_, kind)| kind).take(MOST_TYPES).collect()
    }

    /// Takes a claim's greatest possible size off what the limits leave.
    fn charge(&mut self, types: &[usize]) {
        self.in_flight += 1;
        if self.left.is_empty() {
            return;
        }
        let mut size = Resources::new();
        for kind in types.iter().filter_map(|at| self.catalogue.types.get(*at)) {
            amounts::max(&mut size, &kind.capacity);
        }
        charge(&mut self.left, &size);
    }
}

/// Takes one node of a size off what the limits leave.
fn charge(left: &mut Resources, size: &Resources) {
    for (name, left) in left.iter_mut() {
        let taken = if name == NODES { Quantity::units(1) } else { amounts::get(size, name) };
        *left = left.minus(taken);
    }
}

impl<'a> Planned<'a> {
    /// Adds copies of a pod as far as some type holds them; returns how many.
    fn fill(&mut self, shop: &Shop<'a>, group: &str, needs: &Needs<'a>, left: u64) -> u64 {
        if !needs.tolerates(&shop.view.pool.spec.template.spec.taints) {
            return 0;
        }
        let repelled = self.pods.iter().any(|(shape, _)| fit::repels(shape));
        for term in &needs.terms {
            let Some(wanted) = shop.narrow(&self.requirements, term) else { continue };
            let narrower = wanted != self.requirements;
            let holds: Vec<Holds> = self
                .types
                .iter()
                .filter_map(|at| {
                    let (kind, fresh) = (shop.catalogue.types.get(*at)?, shop.fresh.get(*at)?);
                    let mut room = fresh.room.clone();
                    amounts::subtract(&mut room, &self.requests, 1);
                    let mut copies = amounts::copies(&room, &needs.shape.requests);
                    if copies == 0 || narrower && !shop.can_be(kind, &wanted) {
                        return None;
                    }
                    if repelled || needs.has_own_rules() {
                        let there: Vec<(&PodShape, u64)> =
                            self.pods.iter().chain(&fresh.daemons).copied().collect();
                        copies = copies.min(needs.room_beside(&there));
                    }
                    (copies > 0).then_some((*at, copies))
                })
                .collect();
            let Some(most) = holds.iter().map(|(_, copies)| *copies).max() else { continue };
            let count = most.min(left);
            let types: Vec<usize> =
                holds.into_iter().filter(|(_, copies)| *copies >= count).map(|(at, _)| at).collect();
            if shop.has_variety(&types, &wanted) {
                amounts::add(
                    &mut self.requests,
                    &needs.shape.requests,
                    i64::try_from(count).unwrap_or(i64::MAX),
                );
                self.pods.push((needs.shape, count));
                self.bought_for.push((short(group).to_owned(), count));
                self.requirements = wanted;
                self.types = Rc::new(types);
                return count;
            }
        }
        0
    }

    /// The node that will come of it, once it takes pods: the smallest that it may become.
    fn to_room(&self, shop: &Shop<'a>, number: u64) -> Room<'a> {
        let types = || self.types.iter().filter_map(|at| shop.catalogue.types.get(*at));
        let fresh = || self.types.iter().filter_map(|at| shop.fresh.get(*at));
        let free = fresh().map(|fresh| fresh.room.clone()).reduce(|mut least, other| {
            amounts::min(&mut least, &other);
            least
        });
        let mut daemons: Vec<(&'a PodShape, u64)> = Vec::new();
        for (shape, count) in fresh().flat_map(|fresh| &fresh.daemons) {
            if !daemons.iter().any(|(known, _)| std::ptr::eq(*known, *shape)) {
                daemons.push((*shape, *count));
            }
        }
        let bought = Bought { number, groups: self.bought_for.clone() };
        let taints = &shop.view.pool.spec.template.spec.taints;
        Room::to_come(
            self.requirements.clone(),
            types().collect(),
            taints,
            free.unwrap_or_default(),
            daemons,
            bought,
        )
    }

    fn to_claim(&self, shop: &Shop<'a>, number: u64) -> NewClaim {
        let template = &shop.view.pool.spec.template;
        let named = shop.cheapest(&self.types, &self.requirements);
        let mut requirements = self.requirements.to_api(|key| {
            shop.catalogue.decides(key) && key != labels::INSTANCE_TYPE && key != labels::CAPACITY_TYPE
        });
        let least = |key: &str| {
            let mut all = self.requirements.min_values();
            all.find(|(other, _)| *other == key).and_then(|(_, least)| i32::try_from(least).ok())
        };
        let mut one_of = |key: &str, values: Vec<String>| {
            let min_values = least(key);
            requirements.push(Requirement {
                key: key.to_owned(),
                operator: Operator::In,
                values,
                min_values,
            });
        };
        let capacity_types: BTreeSet<&str> = named
            .iter()
            .flat_map(|kind| kind.buyable(&self.requirements).map(|sold| sold.capacity_type.as_str()))
            .collect();
        one_of(labels::CAPACITY_TYPE, capacity_types.into_iter().map(ToOwned::to_owned).collect());
        one_of(labels::INSTANCE_TYPE, named.iter().map(|kind| kind.name.clone()).collect());

        let mut requests = self.requests.clone();
        let overheads =
            self.types.iter().filter_map(|at| shop.fresh.get(*at)).map(|fresh| fresh.overhead.clone());
        let least_overhead = overheads.reduce(|mut least, other| {
            amounts::min(&mut least, &other);
            least
        });
        amounts::add(&mut requests, &least_overhead.unwrap_or_default(), 1);

        let mut annotations = template.metadata.annotations.clone();
        annotations.insert(labels::NODEPOOL_HASH.to_owned(), shop.view.hash.clone());
        annotations.insert(labels::NODEPOOL_HASH_VERSION.to_owned(), labels::HASH_VERSION.to_owned());
        let groups: Vec<String> =
            self.bought_for.iter().map(|(group, count)| format!("{group}={count}")).collect();
        annotations.insert(BOUGHT_FOR.to_owned(), format!("{number}:{}", groups.join(",")));
        NewClaim {
            name: self.name.clone(),
            pool: shop.view.pool.name.clone(),
            pool_uid: shop.view.pool.uid.clone(),
            labels: claim_labels(shop, &self.requirements),
            annotations,
            spec: NodeClaimSpec {
                node_class_ref: template.spec.node_class_ref.clone(),
                requirements,
                resources: ResourceRequests { requests: amounts::to_api(&requests) },
                taints: template.spec.taints.clone(),
                startup_taints: template.spec.startup_taints.clone(),
                expire_after: template.spec.expire_after.clone(),
                termination_grace_period: template.spec.termination_grace_period.clone(),
            },
        }
    }
}

/// Labels that every node of a pool has: the template's, the pool's name and the node class.
fn fixed_labels(view: &PoolView<'_>) -> Labels {
    let template = &view.pool.spec.template;
    let class = &template.spec.node_class_ref;
    let mut all = template.metadata.labels.clone();
    all.insert(labels::NODEPOOL.to_owned(), view.pool.name.clone());
    all.insert(format!("{}/{}", class.group, class.kind.to_lowercase()), class.name.clone());
    all
}

/// The fixed labels, and one value for each required label that no instance type decides about.
fn claim_labels(shop: &Shop<'_>, requirements: &Requirements) -> Labels {
    let mut all = fixed_labels(shop.view);
    for (key, values) in requirements.iter() {
        if !shop.catalogue.decides(key)
            && key != labels::HOSTNAME
            && let Some(value) = values.pick()
        {
            all.entry(key.to_owned()).or_insert(value);
        }
    }
    all
}

/// A name that depends on the pool, its generation, the demand and the slot alone, so that asking twice is asking once.
fn name(view: &PoolView<'_>, demand: &str, slot: &mut u64, used: &BTreeSet<String>) -> String {
    let pool = view.pool;
    let end = pool.name.len().min(LONGEST_NAME - 11);
    let prefix = pool.name.get(..end).unwrap_or_default().trim_end_matches(['-', '.']);
    loop {
        let digest = hash(&[&pool.uid, &pool.generation.to_string(), demand, &slot.to_string()]);
        *slot += 1;
        let name = format!("{prefix}-{}", digest.get(..10).unwrap_or_default());
        if !used.contains(&name) {
            return name;
        }
    }
}
