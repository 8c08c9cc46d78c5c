//! Which offering a claim gets: the cheapest one that satisfies its requirements and holds its requests.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use buffer_api::{
    NodeClaimSpec, Quantity,
    fake_node_class::{InstanceType, Offering},
    karpenter::{Operator, Requirement},
    labels,
    quantity::{ParseQuantityError, parse_amounts},
};

use crate::{chance, select};

/// Amounts by resource name.
pub type Resources = BTreeMap<String, Quantity>;

/// One thing that can be bought.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// What.
    pub instance_type: &'a InstanceType,
    /// Where and how.
    pub offering: &'a Offering,
}

impl Offer<'_> {
    /// Whether an instance can satisfy the requirement. Labels that the offer says nothing about are given by the claim.
    fn meets(&self, requirement: &Requirement) -> bool {
        let allows = |value: &String| select::allows(requirement.operator, &requirement.values, Some(value));
        match requirement.key.as_str() {
            labels::INSTANCE_TYPE => allows(&self.instance_type.name),
            labels::ZONE => allows(&self.offering.zone),
            labels::CAPACITY_TYPE => allows(&self.offering.capacity_type),
            key => {
                let of_type =
                    self.instance_type.requirements.iter().find(|r| r.key == key && r.operator == "In");
                of_type.and_then(|r| r.values.as_ref()).is_none_or(|values| values.iter().any(allows))
            }
        }
    }

    /// Labels of the instance: type, zone, capacity type, and every label of the type that has one value.
    #[must_use]
    pub fn labels(&self) -> BTreeMap<String, String> {
        let of_type = self.instance_type.requirements.iter().filter_map(|r| match r.values.as_deref() {
            Some([value]) if r.operator == "In" => Some((r.key.clone(), value.clone())),
            _ => None,
        });
        let of_offering = [
            (labels::INSTANCE_TYPE, &self.instance_type.name),
            (labels::ZONE, &self.offering.zone),
            (labels::CAPACITY_TYPE, &self.offering.capacity_type),
        ];
        of_type.chain(of_offering.map(|(key, value)| (key.to_owned(), value.clone()))).collect()
    }
}

/// The offers that satisfy a claim, in the order in which they are tried: by price, then as the claim and the catalogue
/// list the types. Zones of equal price come in an order that depends on the claim's name, so that claims spread.
pub fn offers<'a>(
    types: &'a [InstanceType],
    name: &str,
    claim: &NodeClaimSpec,
) -> Result<Vec<Offer<'a>>, ParseQuantityError> {
    let requests = parse_amounts(&claim.resources.requests)?;
    let listed: BTreeMap<&str, usize> = claim
        .requirements
        .iter()
        .filter(|r| r.key == labels::INSTANCE_TYPE && r.operator == Operator::In)
        .flat_map(|r| r.values.iter().enumerate().map(|(rank, value)| (value.as_str(), rank)))
        .collect();
    let zones: Vec<&str> = types
        .iter()
        .flat_map(|t| t.offerings.iter().map(|o| o.zone.as_str()))
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let first_zone = usize::try_from(chance::hash(0, &[name]) >> 32).unwrap_or_default();
    let zone_rank = |zone: &str| {
        let position = zones.binary_search(&zone).unwrap_or_default();
        (position + zones.len() - first_zone % zones.len().max(1)) % zones.len().max(1)
    };

    let mut ranked = Vec::new();
    for (index, instance_type) in types.iter().enumerate() {
        let offers = instance_type.offerings.iter().map(|offering| Offer { instance_type, offering });
        let mut met = offers.filter(|offer| claim.requirements.iter().all(|r| offer.meets(r))).peekable();
        if met.peek().is_none() || !holds(&allocatable(instance_type)?, &requests) {
            continue;
        }
        let rank = listed.get(instance_type.name.as_str()).copied().unwrap_or(usize::MAX);
        ranked.extend(met.map(|offer| {
            let Offering { zone, capacity_type, .. } = offer.offering;
            ((rank, index, zone_rank(zone), capacity_type), offer)
        }));
    }
    ranked.sort_by(|(rank_a, a), (rank_b, b)| match a.offering.price.total_cmp(&b.offering.price) {
        Ordering::Equal => rank_a.cmp(rank_b),
        by_price => by_price,
    });
    Ok(ranked.into_iter().map(|(_, offer)| offer).collect())
}

/// Capacity less overhead, never negative.
pub fn allocatable(instance_type: &InstanceType) -> Result<Resources, ParseQuantityError> {
    let overhead = parse_amounts(&instance_type.overhead)?;
    let mut rest = parse_amounts(&instance_type.capacity)?;
    for (resource, amount) in &mut rest {
        let kept = overhead.get(resource).copied().unwrap_or_default();
        *amount = amount.minus(kept).max(Quantity::ZERO);
    }
    Ok(rest)
}

fn holds(allocatable: &Resources, requests: &Resources) -> bool {
    requests
        .iter()
        .all(|(resource, &amount)| amount <= allocatable.get(resource).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::catalog;

    fn types() -> Vec<InstanceType> {
        catalog::instance_types(catalog::DEFAULT).expect("readable")
    }

    fn requirement(key: &str, operator: Operator, values: &[&str]) -> Requirement {
        Requirement {
            key: key.to_owned(),
            operator,
            values: values.iter().map(|&v| v.to_owned()).collect(),
            min_values: None,
        }
    }

    fn claim(requirements: Vec<Requirement>, requests: &[(&str, &str)]) -> NodeClaimSpec {
        let mut claim = NodeClaimSpec { requirements, ..Default::default() };
        claim.resources.requests =
            requests.iter().map(|&(k, v)| (k.to_owned(), ApiQuantity(v.to_owned()))).collect();
        claim
    }

    fn first(requirements: Vec<Requirement>, requests: &[(&str, &str)]) -> Option<(String, String)> {
        let types = types();
        let offers = offers(&types, "web-1", &claim(requirements, requests)).expect("quantities");
        offers.first().map(|o| (o.instance_type.name.clone(), o.offering.capacity_type.clone()))
    }

    #[rstest]
    #[case(vec![], &[], Some(("c-1x-amd64-linux", "spot")))]
    #[case(vec![requirement(labels::CAPACITY_TYPE, Operator::In, &["on-demand"])], &[("cpu", "1")], Some(("c-2x-amd64-linux", "on-demand")))]
    #[case(vec![], &[("cpu", "900m"), ("memory", "2038Mi"), ("pods", "16")], Some(("c-1x-amd64-linux", "spot")))]
    #[case(vec![], &[("cpu", "900m"), ("memory", "2039Mi")], Some(("s-1x-amd64-linux", "spot")))]
    #[case(vec![], &[("pods", "17")], Some(("c-2x-amd64-linux", "spot")))]
    #[case(vec![], &[("example.com/gpu", "1")], None)]
    #[case(vec![], &[("example.com/gpu", "0")], Some(("c-1x-amd64-linux", "spot")))]
    #[case(vec![], &[("cpu", "256")], None)]
    #[case(vec![requirement(labels::ARCH, Operator::NotIn, &["amd64"])], &[], Some(("c-1x-arm64-linux", "spot")))]
    #[case(vec![requirement(labels::OS, Operator::In, &["windows"])], &[], Some(("c-1x-amd64-windows", "spot")))]
    #[case(vec![requirement(catalog::CPU, Operator::Gt, &["4"]), requirement(catalog::CPU, Operator::Lt, &["16"])], &[], Some(("c-8x-amd64-linux", "spot")))]
    #[case(vec![requirement(catalog::FAMILY, Operator::In, &["m", "s"])], &[], Some(("s-1x-amd64-linux", "spot")))]
    #[case(vec![requirement("team", Operator::In, &["blue"])], &[], Some(("c-1x-amd64-linux", "spot")))]
    #[case(vec![requirement(labels::ZONE, Operator::In, &["elsewhere"])], &[], None)]
    #[case(vec![requirement(labels::ZONE, Operator::DoesNotExist, &[])], &[], None)]
    #[case(
        vec![requirement(labels::INSTANCE_TYPE, Operator::In, &["c-1x-arm64-linux", "c-1x-amd64-linux"])],
        &[],
        Some(("c-1x-arm64-linux", "spot"))
    )]
    fn cheapest(
        #[case] requirements: Vec<Requirement>,
        #[case] requests: &[(&str, &str)],
        #[case] want: Option<(&str, &str)>,
    ) {
        let want = want.map(|(name, capacity_type)| (name.to_owned(), capacity_type.to_owned()));
        assert_eq!(first(requirements, requests), want);
    }

    #[test]
    fn claims_spread_over_zones() {
        let types = types();
        let mut zones = BTreeMap::<String, u32>::new();
        for claim in 0..100 {
            let offers =
                offers(&types, &format!("web-{claim}"), &NodeClaimSpec::default()).expect("quantities");
            *zones.entry(offers[0].offering.zone.clone()).or_default() += 1;
        }
        assert_eq!(zones.len(), 4);
        assert!(zones.values().all(|&n| n >= 10), "{zones:?}");
    }

    #[test]
    fn labels_of_an_offer() {
        let types = types();
        let offer = offers(&types, "web-1", &NodeClaimSpec::default()).expect("quantities")[0];
        let labels = offer.labels();
        assert_eq!(labels[labels::INSTANCE_TYPE], "c-1x-amd64-linux");
        assert_eq!(labels[labels::ARCH], "amd64");
        assert_eq!(labels[labels::CAPACITY_TYPE], "spot");
        assert_eq!(labels.len(), 9);
    }

    #[test]
    fn allocatable_is_capacity_less_overhead() {
        let types = types();
        let rest = allocatable(&types[0]).expect("quantities");
        assert_eq!(rest["cpu"].to_string(), "900m");
        assert_eq!(rest["memory"], "2038Mi".parse().expect("a quantity"));
        assert_eq!(rest["pods"], Quantity::units(16));
    }

    fn any_requirement() -> impl Strategy<Value = Requirement> {
        let operator = prop_oneof![
            Just(Operator::In),
            Just(Operator::NotIn),
            Just(Operator::Exists),
            Just(Operator::Gt),
            Just(Operator::Lt)
        ];
        let key = prop_oneof![
            Just(labels::ZONE),
            Just(labels::CAPACITY_TYPE),
            Just(labels::ARCH),
            Just(catalog::CPU),
            Just(catalog::FAMILY)
        ];
        let value = prop_oneof![
            Just("test-zone-a"),
            Just("test-zone-c"),
            Just("spot"),
            Just("arm64"),
            Just("4"),
            Just("64"),
            Just("c")
        ];
        (key, operator, prop::collection::vec(value, 1..4))
            .prop_map(|(key, operator, values)| requirement(key, operator, &values))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn exactly_what_satisfies_in_price_order(
            requirements in prop::collection::vec(any_requirement(), 0..4),
            cpu in 0_i64..300_000,
            name in "[a-z]{1,8}",
        ) {
            let types = types();
            let claim = claim(requirements, &[("cpu", &format!("{cpu}m"))]);
            let chosen = offers(&types, &name, &claim).expect("quantities");
            prop_assert!(chosen.windows(2).all(|w| w[0].offering.price <= w[1].offering.price));
            let satisfied = |labels: &BTreeMap<String, String>| claim.requirements.iter().all(|r| {
                select::allows(r.operator, &r.values, labels.get(&r.key).map(String::as_str))
            });
            let mut want = 0;
            for instance_type in &types {
                let room = allocatable(instance_type).expect("quantities")["cpu"];
                for offering in &instance_type.offerings {
                    let labels = Offer { instance_type, offering }.labels();
                    want += usize::from(satisfied(&labels) && Quantity::milli(cpu) <= room);
                }
            }
            prop_assert_eq!(chosen.len(), want);
            prop_assert!(chosen.iter().all(|offer| satisfied(&offer.labels())));
            let again = offers(&types, &name, &claim).expect("quantities");
            prop_assert!(chosen.iter().zip(&again).all(|(a, b)| std::ptr::eq(a.offering, b.offering)));
        }
    }
}
