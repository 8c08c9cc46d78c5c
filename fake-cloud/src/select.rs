//! Which values a label may have: the operators of node selectors and of NodeClaim requirements.

use buffer_api::karpenter::Operator;
use k8s_openapi::api::core::v1::NodeSelectorRequirement;

/// Whether a label with this value (or without one) satisfies the operator. `Gt` and `Lt` compare integers; what is no
/// integer satisfies neither.
#[must_use]
pub fn allows(operator: Operator, values: &[String], value: Option<&str>) -> bool {
    let integers = || {
        let bound = values.first()?.parse::<i64>().ok()?;
        Some((value?.parse::<i64>().ok()?, bound))
    };
    match operator {
        Operator::In => value.is_some_and(|v| values.iter().any(|allowed| allowed == v)),
        Operator::NotIn => value.is_none_or(|v| values.iter().all(|refused| refused != v)),
        Operator::Exists => value.is_some(),
        Operator::DoesNotExist => value.is_none(),
        Operator::Gt => integers().is_some_and(|(v, bound)| v > bound),
        Operator::Lt => integers().is_some_and(|(v, bound)| v < bound),
    }
}

/// Whether a label with this value (or without one) satisfies a requirement of a node selector. An operator that
/// Kubernetes doesn't have is satisfied by nothing.
#[must_use]
pub fn satisfies(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    Operator::parse(&requirement.operator).is_some_and(|operator| allows(operator, values, value))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(Operator::In, &["a", "b"], Some("b"), true)]
    #[case(Operator::In, &["a"], None, false)]
    #[case(Operator::NotIn, &["a"], Some("b"), true)]
    #[case(Operator::NotIn, &["a"], Some("a"), false)]
    #[case(Operator::NotIn, &["a"], None, true)]
    #[case(Operator::Exists, &[], Some(""), true)]
    #[case(Operator::Exists, &[], None, false)]
    #[case(Operator::DoesNotExist, &[], None, true)]
    #[case(Operator::DoesNotExist, &[], Some("a"), false)]
    #[case(Operator::Gt, &["4"], Some("16"), true)]
    #[case(Operator::Gt, &["4"], Some("4"), false)]
    #[case(Operator::Gt, &["4"], Some("many"), false)]
    #[case(Operator::Gt, &["4"], None, false)]
    #[case(Operator::Gt, &[], Some("4"), false)]
    #[case(Operator::Lt, &["4"], Some("3"), true)]
    #[case(Operator::Lt, &["4"], Some("4"), false)]
    fn table(
        #[case] operator: Operator,
        #[case] values: &[&str],
        #[case] value: Option<&str>,
        #[case] want: bool,
    ) {
        let values: Vec<String> = values.iter().map(|&v| v.to_owned()).collect();
        assert_eq!(allows(operator, &values, value), want);
        let requirement = NodeSelectorRequirement {
            key: "k".to_owned(),
            operator: format!("{operator:?}"),
            values: Some(values),
        };
        assert_eq!(satisfies(&requirement, value), want);
    }

    #[test]
    fn unknown_operator() {
        let requirement = NodeSelectorRequirement { operator: "Like".to_owned(), ..Default::default() };
        assert!(!satisfies(&requirement, Some("a")));
    }
}
