//! Requirements on node labels and what is left when several of them meet.
//!
//! Source: core/v1 NodeSelectorRequirement (In, NotIn, Exists, DoesNotExist, Gt, Lt; a missing label satisfies NotIn and
//! DoesNotExist alone) and Karpenter's NodePool requirements (the same operators and `minValues`).

use std::collections::{BTreeMap, BTreeSet};

use buffer_api::{
    karpenter::{Operator, Requirement},
    labels,
};
use k8s_openapi::api::core::v1::NodeSelectorRequirement;

/// The values that one label may have.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Values {
    /// `listed` are those that are excluded; else those that are allowed.
    complement: bool,
    listed: BTreeSet<String>,
    /// Only integers greater than this.
    above: Option<i64>,
    /// Only integers less than this.
    below: Option<i64>,
    /// The label may be missing.
    absent: bool,
}

impl Values {
    /// One of `values`.
    pub fn one_of<T: Into<String>>(values: impl IntoIterator<Item = T>) -> Self {
        let listed = values.into_iter().map(Into::into).collect();
        Self { complement: false, listed, above: None, below: None, absent: false }
    }

    /// Anything but `values`, also nothing.
    pub fn none_of<T: Into<String>>(values: impl IntoIterator<Item = T>) -> Self {
        Self { complement: true, absent: true, ..Self::one_of(values) }
    }

    /// What an operator and its values allow. Gt and Lt without exactly one integer allow nothing.
    #[must_use]
    pub fn new(operator: Operator, values: &[String]) -> Self {
        let bound = || match values {
            [value] => value.parse::<i64>().ok(),
            _ => None,
        };
        let any = || Self { complement: true, ..Self::one_of::<String>([]) };
        match operator {
            Operator::In => Self::one_of(values.iter().cloned()),
            Operator::NotIn => Self::none_of(values.iter().cloned()),
            Operator::Exists => any(),
            Operator::DoesNotExist => Self { absent: true, ..Self::one_of::<String>([]) },
            Operator::Gt => bound().map_or_else(Self::nothing, |above| Self { above: Some(above), ..any() }),
            Operator::Lt => bound().map_or_else(Self::nothing, |below| Self { below: Some(below), ..any() }),
        }
    }

    /// Nothing at all.
    fn nothing() -> Self {
        Self::one_of::<String>([])
    }

    /// Whether a label with this value, or a missing one, is allowed.
    #[must_use]
    pub fn allows(&self, value: Option<&str>) -> bool {
        match value {
            None => self.absent,
            Some(value) => self.listed.contains(value) != self.complement && self.within_bounds(value),
        }
    }

    fn within_bounds(&self, value: &str) -> bool {
        if self.above.is_none() && self.below.is_none() {
            return true;
        }
        value.parse::<i64>().is_ok_and(|number| {
            self.above.is_none_or(|above| number > above) && self.below.is_none_or(|below| number < below)
        })
    }

    /// What both allow.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let above = self.above.max(other.above);
        let below = match (self.below, other.below) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        let absent = self.absent && other.absent;
        let both = match (self.complement, other.complement) {
            (true, true) => {
                let listed = self.listed.union(&other.listed).cloned().collect();
                Self { complement: true, listed, above, below, absent }
            }
            (false, _) => self.filtered(other, absent),
            (true, false) => other.filtered(self, absent),
        };
        if both.complement && both.bounds_are_empty() { Self { absent, ..Self::nothing() } } else { both }
    }

    /// Those of our finite values that `other` allows.
    fn filtered(&self, other: &Self, absent: bool) -> Self {
        let values = self.listed.iter().filter(|value| other.allows(Some(value))).cloned();
        Self { absent, ..Self::one_of(values) }
    }

    fn bounds_are_empty(&self) -> bool {
        matches!((self.above, self.below), (Some(above), Some(below)) if below.saturating_sub(1) <= above)
    }

    /// Whether a label could be as both want it.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        match (self.finite(), other.finite()) {
            (Some(values), _) => {
                self.absent && other.absent || values.iter().any(|value| other.allows(Some(value)))
            }
            (None, Some(_)) => other.meets(self),
            (None, None) => self.intersect(other).is_possible(),
        }
    }

    /// Whether anything is allowed.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        self.absent || self.complement || !self.listed.is_empty()
    }

    /// The allowed values if they are finite.
    #[must_use]
    pub fn finite(&self) -> Option<&BTreeSet<String>> {
        (!self.complement).then_some(&self.listed)
    }

    /// Whether `other` allows everything that this allows.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        if self.absent && !other.absent {
            return false;
        }
        if !self.complement {
            return self.listed.iter().all(|value| other.allows(Some(value)));
        }
        other.complement
            && other.listed.iter().all(|value| !self.allows(Some(value)))
            && other.above.is_none_or(|bound| self.above.is_some_and(|above| above >= bound))
            && other.below.is_none_or(|bound| self.below.is_some_and(|below| below <= bound))
    }

    /// Whether a value that nobody has used before is allowed: the name of a host yet to be.
    #[must_use]
    pub fn allows_new(&self) -> bool {
        self.complement && self.above.is_none() && self.below.is_none()
    }

    /// One value for a label that has to have one; `None` if the label may be missing or nothing is allowed.
    #[must_use]
    pub fn pick(&self) -> Option<String> {
        if self.absent {
            return None;
        }
        if !self.complement {
            return self.listed.first().cloned();
        }
        if self.above.is_none() && self.below.is_none() {
            let candidates = (0..=self.listed.len()).map(|number| format!("any-{number}"));
            return candidates.into_iter().find(|value| self.allows(Some(value)));
        }
        let from = self.above.map_or_else(
            || self.below.map_or(0, |below| below.saturating_sub(1)),
            |above| above.saturating_add(1),
        );
        let step = if self.above.is_some() { 1 } else { -1 };
        let candidates = (0_i64..)
            .take(self.listed.len() + 1)
            .map(|number| from.saturating_add(step * number).to_string());
        candidates.into_iter().find(|value| self.allows(Some(value)))
    }

    /// The same as requirements of the API.
    fn to_api(&self, key: &str, min_values: Option<i32>) -> Vec<Requirement> {
        let requirement =
            |operator, values| Requirement { key: key.to_owned(), operator, values, min_values };
        let values: Vec<String> = self.listed.iter().cloned().collect();
        if !self.complement {
            let operator =
                if self.absent && values.is_empty() { Operator::DoesNotExist } else { Operator::In };
            return vec![requirement(operator, values)];
        }
        let mut all = Vec::new();
        if !values.is_empty() {
            all.push(requirement(Operator::NotIn, values));
        }
        if let Some(above) = self.above {
            all.push(requirement(Operator::Gt, vec![above.to_string()]));
        }
        if let Some(below) = self.below {
            all.push(requirement(Operator::Lt, vec![below.to_string()]));
        }
        if !self.absent && self.above.is_none() && self.below.is_none() {
            all.push(requirement(Operator::Exists, Vec::new()));
        }
        all
    }
}

/// Requirements on several labels, all of which must hold.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Requirements {
    keys: BTreeMap<String, Values>,
    min_values: BTreeMap<String, i32>,
}

impl Requirements {
    /// Requirements of a NodePool or NodeClaim.
    #[must_use]
    pub fn from_api(requirements: &[Requirement]) -> Self {
        let mut all = Self::default();
        for requirement in requirements {
            all.and(&requirement.key, &Values::new(requirement.operator, &requirement.values));
            if let Some(least) = requirement.min_values {
                let stored = all.min_values.entry(normal_key(&requirement.key).to_owned()).or_default();
                *stored = least.max(*stored);
            }
        }
        all
    }

    /// Requirements of a pod or an instance type. An operator that is not known allows nothing.
    #[must_use]
    pub fn from_selector(requirements: &[NodeSelectorRequirement]) -> Self {
        let mut all = Self::default();
        for requirement in requirements {
            all.and(&requirement.key, &selector_values(requirement));
        }
        all
    }

    /// Exactly these labels.
    pub fn from_labels<'a>(labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        let mut all = Self::default();
        for (key, value) in labels {
            all.and(key, &Values::one_of([value.as_str()]));
        }
        all
    }

    /// Adds a requirement on a label.
    pub fn and(&mut self, key: &str, values: &Values) {
        match self.keys.get_mut(normal_key(key)) {
            Some(stored) => *stored = stored.intersect(values),
            None => {
                self.keys.insert(normal_key(key).to_owned(), values.clone());
            }
        }
    }

    /// Adds all requirements of `other`.
    pub fn and_all(&mut self, other: &Self) {
        for (key, values) in &other.keys {
            self.and(key, values);
        }
        for (key, least) in &other.min_values {
            let stored = self.min_values.entry(key.clone()).or_default();
            *stored = (*stored).max(*least);
        }
    }

    /// What is required of a label.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Values> {
        self.keys.get(normal_key(key))
    }

    /// All labels on which something is required.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Values)> {
        self.keys.iter().map(|(key, values)| (key.as_str(), values))
    }

    /// Keys of which at least so many distinct values must stay possible.
    pub fn min_values(&self) -> impl Iterator<Item = (&str, usize)> {
        self.min_values.iter().map(|(key, least)| (key.as_str(), usize::try_from(*least).unwrap_or(0)))
    }

    /// Whether each label can still have a value.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        self.keys.values().all(Values::is_possible)
    }

    /// The requirements on keys that `wanted` picks, as the API writes them.
    #[must_use]
    pub fn to_api(&self, wanted: impl Fn(&str) -> bool) -> Vec<Requirement> {
        let picked = self.keys.iter().filter(|(key, _)| wanted(key));
        picked.flat_map(|(key, values)| values.to_api(key, self.min_values.get(key).copied())).collect()
    }
}

/// What a pod's or an instance type's requirement allows.
#[must_use]
pub fn selector_values(requirement: &NodeSelectorRequirement) -> Values {
    let values = requirement.values.as_deref().unwrap_or_default();
    match Operator::parse(&requirement.operator) {
        Some(operator) => Values::new(operator, values),
        None => Values::nothing(),
    }
}

/// Kubelets set the beta forms of these two labels to the same values.
fn normal_key(key: &str) -> &str {
    match key {
        "beta.kubernetes.io/arch" => labels::ARCH,
        "beta.kubernetes.io/os" => labels::OS,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn values(operator: Operator, values: &[&str]) -> Values {
        Values::new(operator, &values.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[rstest]
    #[case::in_one(Operator::In, &["a", "b"], Some("a"), true)]
    #[case::in_other(Operator::In, &["a"], Some("b"), false)]
    #[case::in_absent(Operator::In, &["a"], None, false)]
    #[case::not_in(Operator::NotIn, &["a"], Some("b"), true)]
    #[case::not_in_same(Operator::NotIn, &["a"], Some("a"), false)]
    #[case::not_in_absent(Operator::NotIn, &["a"], None, true)]
    #[case::exists(Operator::Exists, &[], Some(""), true)]
    #[case::exists_absent(Operator::Exists, &[], None, false)]
    #[case::does_not_exist(Operator::DoesNotExist, &[], Some("a"), false)]
    #[case::does_not_exist_absent(Operator::DoesNotExist, &[], None, true)]
    #[case::gt(Operator::Gt, &["3"], Some("4"), true)]
    #[case::gt_equal(Operator::Gt, &["3"], Some("3"), false)]
    #[case::gt_text(Operator::Gt, &["3"], Some("many"), false)]
    #[case::gt_absent(Operator::Gt, &["3"], None, false)]
    #[case::gt_without_number(Operator::Gt, &["x"], Some("4"), false)]
    #[case::lt(Operator::Lt, &["3"], Some("-2"), true)]
    fn allows(
        #[case] operator: Operator,
        #[case] list: &[&str],
        #[case] value: Option<&str>,
        #[case] want: bool,
    ) {
        assert_eq!(values(operator, list).allows(value), want);
    }

    #[test]
    fn contradictions_leave_nothing() {
        for (one, two) in [
            (values(Operator::In, &["a"]), values(Operator::NotIn, &["a"])),
            (values(Operator::Gt, &["3"]), values(Operator::Lt, &["4"])),
            (values(Operator::Exists, &[]), values(Operator::DoesNotExist, &[])),
        ] {
            assert!(!one.intersect(&two).is_possible());
            assert!(!one.meets(&two));
        }
        let (one, two) = (values(Operator::NotIn, &["a"]), values(Operator::DoesNotExist, &[]));
        assert!(one.meets(&two));
    }

    #[test]
    fn round_trips_through_the_api() {
        let mut all = Requirements::default();
        all.and("a", &values(Operator::In, &["x", "y"]));
        all.and("b", &values(Operator::NotIn, &["x"]));
        all.and("b", &values(Operator::Exists, &[]));
        all.and("c", &values(Operator::Gt, &["3"]));
        all.and("c", &values(Operator::Lt, &["9"]));
        all.and("d", &values(Operator::DoesNotExist, &[]));
        assert_eq!(Requirements::from_api(&all.to_api(|_| true)), all);
    }

    fn any_values() -> impl Strategy<Value = Values> {
        let operator = prop::sample::select(vec![
            Operator::In,
            Operator::NotIn,
            Operator::Exists,
            Operator::DoesNotExist,
            Operator::Gt,
            Operator::Lt,
        ]);
        let list = prop::collection::btree_set(prop::sample::select(vec!["1", "2", "3", "x"]), 0..3);
        (operator, list, 0..5_i64).prop_map(|(operator, list, bound)| match operator {
            Operator::Gt | Operator::Lt => Values::new(operator, &[bound.to_string()]),
            _ => values(operator, &list.into_iter().collect::<Vec<_>>()),
        })
    }

    fn candidates() -> impl Iterator<Item = Option<&'static str>> {
        [None, Some("0"), Some("1"), Some("2"), Some("3"), Some("4"), Some("9"), Some("x"), Some("new")]
            .into_iter()
    }

    proptest! {
        #[test]
        fn intersection_allows_what_both_allow(one in any_values(), two in any_values(), three in any_values()) {
            let both = one.intersect(&two).intersect(&three);
            for value in candidates() {
                let want = one.allows(value) && two.allows(value) && three.allows(value);
                prop_assert_eq!(both.allows(value), want, "{:?}", value);
            }
            prop_assert_eq!(one.meets(&two), one.intersect(&two).is_possible());
            prop_assert_eq!(one.meets(&two), two.meets(&one));
        }

        #[test]
        fn within_means_that_all_is_allowed(one in any_values(), two in any_values()) {
            if one.is_within(&two) {
                for value in candidates() {
                    prop_assert!(!one.allows(value) || two.allows(value), "{:?}", value);
                }
            }
            prop_assert!(one.intersect(&two).is_within(&one));
            if let Some(picked) = one.intersect(&two).pick() {
                prop_assert!(one.allows(Some(&picked)) && two.allows(Some(&picked)));
            }
        }
    }
}
