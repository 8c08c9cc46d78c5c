//! One attempt to buy an instance for a claim: quota, faults, and the offerings in price order.

use std::{collections::BTreeMap, time::Duration};

use buffer_api::{
    FakeNodeClass, NodeClaim,
    conditions::claim::{INSUFFICIENT_CAPACITY, LAUNCH_FAILED, QUOTA_EXCEEDED},
    fake_node_class::{FakeNodeClassStatus, StruckFault, UnavailableOffering},
    quantity::ParseQuantityError,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time};

use crate::{
    offer::{self, Offer},
    rules::{Labels, Rules},
};

/// Offerings that a message names in full.
const NAMED: usize = 5;

/// What came of an attempt, and what the class's status must say before the claim's does.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// What came of it.
    pub outcome: Outcome,
    /// Offerings that turned out to be unavailable.
    pub lacking: Vec<UnavailableOffering>,
    /// The class's whole record of strikes, if it changed.
    pub struck: Option<Vec<StruckFault>>,
}

/// What came of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// This was bought.
    Bought(Instance),
    /// Nothing was bought, and it is worth another try.
    Retry {
        /// Reason of `Launched=Unknown`.
        reason: &'static str,
        /// Its message.
        message: String,
    },
    /// Nothing that the claim allows can be bought.
    Refused {
        /// Message of `Launched=False`.
        message: String,
    },
}

impl Outcome {
    /// The reason of the condition `Launched` where nothing was bought.
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Bought(_) => None,
            Self::Retry { reason, .. } => Some(reason),
            Self::Refused { .. } => Some(INSUFFICIENT_CAPACITY),
        }
    }
}

/// What was bought.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Instance {
    /// Labels of the instance.
    pub labels: Labels,
    /// Its size.
    pub capacity: BTreeMap<String, Quantity>,
    /// Its size less what the system keeps.
    pub allocatable: BTreeMap<String, Quantity>,
}

/// Tries to buy an instance. `owned` is the number of instances that the class has sold already, `attempt` the number of
/// attempts before this one.
pub fn attempt(
    claim: &NodeClaim,
    class: &FakeNodeClass,
    rules: &Rules,
    owned: usize,
    attempt: u32,
    now: Timestamp,
) -> Result<Attempt, ParseQuantityError> {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let nothing = FakeNodeClassStatus::default();
    let status = class.status.as_ref().unwrap_or(&nothing);
    let done = |outcome| Ok(Attempt { outcome, lacking: Vec::new(), struck: None });

    let quota = class.spec.quota.instances;
    if owned >= usize::try_from(quota).unwrap_or(usize::MAX) {
        let message = format!("all {quota} instances of the quota are in use");
        return done(Outcome::Retry { reason: QUOTA_EXCEEDED, message });
    }
    let offers = offer::offers(&status.instance_types, name, &claim.spec)?;
    if offers.is_empty() {
        let message = "no offering satisfies the claim's requirements and holds its requests".to_owned();
        return done(Outcome::Refused { message });
    }

    let mut struck = status.struck.clone();
    let mut lacking = Vec::new();
    let mut failed = Vec::new();
    let mut outcome = None;
    for offer in offers {
        let labels = joined(claim, &offer);
        let offer_name = offer_name(&offer);
        if status.unavailable.iter().any(|lack| is(lack, &offer) && lack.until.0 > now) {
            failed.push(offer_name);
            continue;
        }
        if let Some(span) = rules.lacks_capacity(&mut struck, name, &labels, &offer_name) {
            lacking.push(lack(&offer, span, now));
            failed.push(offer_name);
            continue;
        }
        outcome = Some(if rules.fails(&mut struck, name, &labels, attempt) {
            let message = format!("the purchase of {offer_name} failed (fault launchError)");
            Outcome::Retry { reason: LAUNCH_FAILED, message }
        } else {
            rules.strike_instance(&mut struck, name, &labels, true);
            Outcome::Bought(instance(&offer)?)
        });
        break;
    }
    let outcome = outcome.unwrap_or_else(|| Outcome::Refused { message: refusal(&failed) });
    Ok(Attempt { outcome, lacking, struck: (struck != status.struck).then_some(struck) })
}

/// The labels by which faults select: those of the instance and those of the claim.
fn joined(claim: &NodeClaim, offer: &Offer) -> Labels {
    let mut labels = claim.metadata.labels.clone().unwrap_or_default();
    labels.extend(offer.labels());
    labels
}

fn offer_name(offer: &Offer) -> String {
    let Offer { instance_type, offering } = offer;
    format!("{}/{}/{}", instance_type.name, offering.zone, offering.capacity_type)
}

fn is(lack: &UnavailableOffering, offer: &Offer) -> bool {
    lack.instance_type == offer.instance_type.name
        && lack.zone == offer.offering.zone
        && lack.capacity_type == offer.offering.capacity_type
}

fn lack(offer: &Offer, span: Duration, now: Timestamp) -> UnavailableOffering {
    UnavailableOffering {
        instance_type: offer.instance_type.name.clone(),
        zone: offer.offering.zone.clone(),
        capacity_type: offer.offering.capacity_type.clone(),
        until: Time(now.saturating_add(span).unwrap_or(Timestamp::MAX)),
    }
}

fn instance(offer: &Offer) -> Result<Instance, ParseQuantityError> {
    let allocatable = offer::allocatable(offer.instance_type)?;
    Ok(Instance {
        labels: offer.labels(),
        capacity: offer.instance_type.capacity.clone(),
        allocatable: allocatable.into_iter().map(|(resource, amount)| (resource, amount.into())).collect(),
    })
}

fn refusal(failed: &[String]) -> String {
    let named = failed[..failed.len().min(NAMED)].join(", ");
    match failed.len().saturating_sub(NAMED) {
        0 => format!("insufficient capacity for {named}"),
        more => format!("insufficient capacity for {named} and {more} more"),
    }
}

/// `unavailable` with `lacking` added: one entry an offering, in order, each with the later time.
#[must_use]
pub fn merge(
    unavailable: &[UnavailableOffering],
    lacking: &[UnavailableOffering],
) -> Vec<UnavailableOffering> {
    let mut merged = BTreeMap::new();
    for entry in unavailable.iter().chain(lacking) {
        let key = (&entry.instance_type, &entry.zone, &entry.capacity_type);
        let latest = merged.entry(key).or_insert(entry);
        if entry.until.0 > latest.until.0 {
            *latest = entry;
        }
    }
    merged.into_values().cloned().collect()
}

#[cfg(test)]
mod tests {
    use buffer_api::{
        FakeNodeClassSpec, NodeClaimSpec,
        fake_node_class::{Fault, FaultKind, Quota},
        karpenter::{Operator, Requirement},
        labels,
    };

    use super::*;
    use crate::catalog;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn class(faults: Vec<Fault>) -> FakeNodeClass {
        let mut class = FakeNodeClass::new("default", FakeNodeClassSpec { faults, ..Default::default() });
        class.status = Some(FakeNodeClassStatus {
            instance_types: catalog::instance_types(catalog::DEFAULT).expect("readable"),
            ..Default::default()
        });
        class
    }

    fn claim(types: &[&str], zones: &[&str]) -> NodeClaim {
        let requirement = |key: &str, values: &[&str]| Requirement {
            key: key.to_owned(),
            operator: Operator::In,
            values: values.iter().map(|&v| v.to_owned()).collect(),
            min_values: None,
        };
        let requirements = vec![
            requirement(labels::INSTANCE_TYPE, types),
            requirement(labels::ZONE, zones),
            requirement(labels::CAPACITY_TYPE, &["on-demand"]),
        ];
        NodeClaim::new("web-1", NodeClaimSpec { requirements, ..Default::default() })
    }

    fn try_once(claim: &NodeClaim, class: &FakeNodeClass, owned: usize) -> Attempt {
        let rules = Rules::parse(&class.spec).expect("rules");
        attempt(claim, class, &rules, owned, 0, NOW).expect("quantities")
    }

    fn bought(attempt: &Attempt) -> (&str, &str) {
        match &attempt.outcome {
            Outcome::Bought(instance) => {
                (&instance.labels[labels::INSTANCE_TYPE], &instance.labels[labels::ZONE])
            }
            other => panic!("not bought: {other:?}"),
        }
    }

    const TWO: &[&str] = &["c-4x-amd64-linux", "c-2x-amd64-linux"];

    #[test]
    fn the_cheapest_is_bought_whole() {
        let attempt = try_once(&claim(TWO, &["test-zone-b"]), &class(vec![]), 0);
        assert_eq!(bought(&attempt), ("c-2x-amd64-linux", "test-zone-b"));
        let Outcome::Bought(instance) = &attempt.outcome else { unreachable!("bought") };
        assert_eq!(instance.capacity["memory"].0, "4Gi");
        assert_eq!(instance.allocatable["cpu"].0, "1900m");
        assert_eq!(instance.allocatable["memory"].0, "4086Mi");
        assert_eq!(instance.allocatable["pods"].0, "32");
        assert!(attempt.lacking.is_empty() && attempt.struck.is_none());
    }

    #[test]
    fn what_lacks_capacity_is_passed_over_and_published() {
        let fault = Fault {
            kind: FaultKind::InsufficientCapacity,
            selector: [(labels::INSTANCE_TYPE.to_owned(), "c-2x-amd64-linux".to_owned())].into(),
            ..Fault::default()
        };
        let claim = claim(TWO, &["test-zone-a", "test-zone-b"]);
        let attempt = try_once(&claim, &class(vec![fault]), 0);
        assert_eq!(bought(&attempt).0, "c-4x-amd64-linux");
        let lacking: Vec<_> =
            attempt.lacking.iter().map(|l| (l.instance_type.as_str(), l.zone.as_str())).collect();
        assert_eq!(lacking.len(), 2);
        assert!(lacking.contains(&("c-2x-amd64-linux", "test-zone-a")));
        assert!(attempt.lacking.iter().all(|l| l.until.0.as_second() == 180));
    }

    #[test]
    fn nothing_left_names_what_failed() {
        let fault = Fault { kind: FaultKind::InsufficientCapacity, ..Fault::default() };
        let claim = claim(TWO, &["test-zone-a"]);
        let attempt = try_once(&claim, &class(vec![fault]), 0);
        let message = "insufficient capacity for c-2x-amd64-linux/test-zone-a/on-demand, \
                       c-4x-amd64-linux/test-zone-a/on-demand";
        assert_eq!(attempt.outcome, Outcome::Refused { message: message.to_owned() });

        // a restart between the class's write and the claim's comes to the same end
        let mut class = class(vec![]);
        if let Some(status) = &mut class.status {
            status.unavailable = attempt.lacking;
        }
        let again = try_once(&claim, &class, 0);
        assert_eq!(again.outcome, Outcome::Refused { message: message.to_owned() });
        assert!(again.lacking.is_empty());
    }

    #[test]
    fn quota() {
        let mut class = class(vec![]);
        class.spec.quota = Quota { instances: 2 };
        assert!(matches!(try_once(&claim(TWO, &["test-zone-a"]), &class, 1).outcome, Outcome::Bought(_)));
        let full = try_once(&claim(TWO, &["test-zone-a"]), &class, 2);
        assert_eq!(full.outcome.reason(), Some(QUOTA_EXCEEDED));
    }

    #[test]
    fn nothing_fits() {
        let attempt = try_once(&claim(&["no-such-type"], &["test-zone-a"]), &class(vec![]), 0);
        assert_eq!(attempt.outcome.reason(), Some(INSUFFICIENT_CAPACITY));
    }

    #[test]
    fn an_error_is_tried_again_until_its_count_is_used_up() {
        let fault = Fault { kind: FaultKind::LaunchError, count: Some(1), ..Fault::default() };
        let mut class = class(vec![fault]);
        let failed = try_once(&claim(TWO, &["test-zone-a"]), &class, 0);
        assert_eq!(failed.outcome.reason(), Some(LAUNCH_FAILED));
        let struck = failed.struck.expect("recorded");
        if let Some(status) = &mut class.status {
            status.struck = struck;
        }
        let second = try_once(&claim(TWO, &["test-zone-a"]), &class, 0);
        assert_eq!(bought(&second).0, "c-2x-amd64-linux");
        assert!(second.struck.is_none());
    }

    #[test]
    fn merging_keeps_the_later_time() {
        let entry = |zone: &str, second| UnavailableOffering {
            instance_type: "c".to_owned(),
            zone: zone.to_owned(),
            capacity_type: "spot".to_owned(),
            until: Time(Timestamp::from_second(second).expect("a time")),
        };
        let merged = merge(&[entry("b", 5), entry("a", 9)], &[entry("a", 7), entry("b", 8)]);
        similar_asserts::assert_eq!(merged, vec![entry("a", 9), entry("b", 8)]);
    }
}
