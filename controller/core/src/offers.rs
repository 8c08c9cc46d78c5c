//! What a node class sells, with exact amounts and label requirements.

use std::collections::BTreeSet;

use buffer_api::{
    fake_node_class::{InstanceType, UnavailableOffering},
    labels,
};
use jiff::Timestamp;

use crate::{
    amounts,
    requirements::{Requirements, Values},
    snapshot::{NodeClass, Resources},
};

/// Everything that one class sells.
#[derive(Debug, Default)]
pub struct Catalogue {
    /// Types in the order of their names. A type whose amounts are not quantities can't be bought and is left out.
    pub types: Vec<Type>,
    /// Label keys that some type or offering decides about; all other keys are the pool's and the pods'.
    keys: BTreeSet<String>,
    /// When the next offering that can't be bought now can be tried again.
    pub next_available: Option<Timestamp>,
}

/// One instance type.
#[derive(Debug)]
pub struct Type {
    /// Name.
    pub name: String,
    /// Size of the machine.
    pub capacity: Resources,
    /// Size less what the system keeps.
    pub allocatable: Resources,
    /// Labels of its nodes, apart from those that the offering decides.
    pub labels: Requirements,
    /// Where and how it is sold.
    pub offerings: Vec<Sold>,
}

/// One offering.
#[derive(Debug)]
pub struct Sold {
    /// Zone.
    pub zone: String,
    /// `on-demand` or `spot`.
    pub capacity_type: String,
    /// Price.
    pub price: f64,
    /// It can be bought now.
    pub available: bool,
}

impl Catalogue {
    /// Reads what a class sells at the time `now`.
    pub fn new(class: &NodeClass, now: Timestamp) -> Self {
        let blocked: BTreeSet<(&str, &str, &str)> =
            class.unavailable.iter().filter(|offering| offering.until.0 > now).map(key).collect();
        let next_available =
            class.unavailable.iter().map(|offering| offering.until.0).filter(|until| *until > now).min();
        let mut types: Vec<Type> =
            class.instance_types.iter().filter_map(|instance| Type::new(instance, &blocked)).collect();
        types.sort_by(|one, two| one.name.cmp(&two.name));
        let fixed = [labels::INSTANCE_TYPE, labels::ZONE, labels::CAPACITY_TYPE, labels::ARCH, labels::OS];
        let keys = fixed.iter().map(ToString::to_string);
        let keys = keys
            .chain(types.iter().flat_map(|kind| kind.labels.iter().map(|(key, _)| key.to_owned())))
            .collect();
        Self { types, keys, next_available }
    }

    /// Whether the instance type or the offering decides about a label.
    pub fn decides(&self, label: &str) -> bool {
        self.keys.contains(label)
    }

    /// The type of a name.
    pub fn find(&self, name: &str) -> Option<&Type> {
        let found = self.types.binary_search_by(|kind| kind.name.as_str().cmp(name)).ok()?;
        self.types.get(found)
    }
}

fn key(offering: &UnavailableOffering) -> (&str, &str, &str) {
    (&offering.instance_type, &offering.zone, &offering.capacity_type)
}

impl Type {
    fn new(instance: &InstanceType, blocked: &BTreeSet<(&str, &str, &str)>) -> Option<Self> {
        let capacity = amounts::parse(&instance.capacity).ok()?;
        let mut allocatable = capacity.clone();
        amounts::subtract(&mut allocatable, &amounts::parse(&instance.overhead).ok()?, 1);
        let mut labels = Requirements::from_selector(&instance.requirements);
        labels.and(labels::INSTANCE_TYPE, &Values::one_of([instance.name.as_str()]));
        let offerings = instance.offerings.iter().map(|offering| Sold {
            zone: offering.zone.clone(),
            capacity_type: offering.capacity_type.clone(),
            price: offering.price,
            available: !blocked.contains(&(
                instance.name.as_str(),
                offering.zone.as_str(),
                offering.capacity_type.as_str(),
            )),
        });
        Some(Self {
            name: instance.name.clone(),
            capacity,
            allocatable,
            labels,
            offerings: offerings.collect(),
        })
    }

    /// Whether a node of this type can be as `wanted` demands, apart from zone and capacity type.
    ///
    /// A label that the type does not have may be demanded only where the catalogue leaves it to the pool.
    pub fn suits(&self, wanted: &Requirements, catalogue: &Catalogue) -> bool {
        wanted.iter().all(|(key, values)| match self.labels.get(key) {
            Some(own) => own.meets(values),
            None => is_of_offering(key) || !catalogue.decides(key) || values.allows(None),
        })
    }

    /// The offerings that can be bought now and are as `wanted` demands.
    pub fn buyable(&self, wanted: &Requirements) -> impl Iterator<Item = &Sold> {
        let zone = wanted.get(labels::ZONE).cloned();
        let capacity_type = wanted.get(labels::CAPACITY_TYPE).cloned();
        self.offerings.iter().filter(move |offering| {
            offering.available
                && zone.as_ref().is_none_or(|zone| zone.allows(Some(&offering.zone)))
                && capacity_type.as_ref().is_none_or(|kind| kind.allows(Some(&offering.capacity_type)))
        })
    }
}

fn is_of_offering(key: &str) -> bool {
    key == labels::ZONE || key == labels::CAPACITY_TYPE
}

/// How many distinct values of a label the types (with their buyable offerings) can still have.
pub fn distinct(types: &[&Type], wanted: &Requirements, key: &str) -> usize {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for kind in types {
        match key {
            labels::ZONE => seen.extend(kind.buyable(wanted).map(|sold| sold.zone.as_str())),
            labels::CAPACITY_TYPE => {
                seen.extend(kind.buyable(wanted).map(|sold| sold.capacity_type.as_str()));
            }
            _ => {
                let finite = kind.labels.get(key).and_then(Values::finite);
                seen.extend(finite.into_iter().flatten().map(String::as_str));
            }
        }
    }
    seen.len()
}
