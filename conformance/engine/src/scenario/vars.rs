//! Variables: `${name}` in any value.
//!
//! A value that is exactly one variable becomes what the variable holds, a number, a text, a map; within a longer
//! text it is written out. `${case.x?}` may be missing: the key or list item whose whole value it is then goes.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    implementation::{Implementation, Shape},
    scenario::{
        model::Case,
        raw::{Kind, Node},
    },
    words::{did_you_mean, nearest},
};

/// Begins the names of the variables that name the node of a pod, `${node.POD}`. What they hold is known when the step is
/// reached.
pub(crate) const NODE_OF: &str = "node.";

/// What the variables hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Vars(BTreeMap<String, Value>);

/// What is wrong with a variable.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SubstituteError {
    /// No such variable here.
    #[error("unknown variable `${{{name}}}`{}", did_you_mean(.nearest.as_deref()))]
    Unknown {
        /// What was written.
        name: String,
        /// What may have been meant.
        nearest: Option<String>,
    },
    /// `${x?}` within a longer text, or where there is no key or list item that could go.
    #[error("`${{{0}?}}` may be missing only where it is the whole value of a key or list item")]
    Optional(String),
    /// A map or a list within a longer text.
    #[error("`${{{0}}}` is a map or a list and can't be part of a text")]
    NotText(String),
    /// A variable in a key.
    #[error("a variable can't be part of a key: `{0}`")]
    Key(String),
    /// `${` without an end, or without a name.
    #[error("`${{` begins a variable, but `{0}` is none")]
    Malformed(String),
}

impl Vars {
    /// Variables of a run and a pool, for the manifests of an implementation: `run`, `pool`.
    #[must_use]
    pub fn for_pool(run: &str, pool: &str) -> Self {
        Self(BTreeMap::from([("run".to_owned(), run.into()), ("pool".to_owned(), pool.into())]))
    }

    /// Variables of every scenario: `run`, `scenario` (the id in lower case) and `namespace`.
    #[must_use]
    pub fn for_scenario(run: &str, id: &str, namespace: &str) -> Self {
        Self(BTreeMap::from([
            ("run".to_owned(), run.into()),
            ("scenario".to_owned(), id.to_lowercase().into()),
            ("namespace".to_owned(), namespace.into()),
        ]))
    }

    /// With an acquired pool: `pool`, and `chunk.…` of its shape.
    #[must_use]
    pub fn with_pool(mut self, pool: &str, shape: &Shape) -> Self {
        self.0.insert("pool".to_owned(), pool.into());
        self.0.extend(shape.chunks().into_iter().map(|(name, chunk)| (format!("chunk.{name}"), chunk)));
        self
    }

    /// With the implementation's own: `implementation.…`.
    #[must_use]
    pub fn with_implementation(mut self, implementation: &Implementation) -> Self {
        let variables = implementation.variables.iter();
        self.0.extend(variables.map(|(name, value)| (format!("implementation.{name}"), value.clone())));
        self
    }

    /// With the cells of a case: `case.name` and the others.
    #[must_use]
    pub fn with_case(mut self, case: &Case) -> Self {
        self.0.insert("case.name".to_owned(), case.name.clone().into());
        self.0.extend(case.values.iter().map(|(name, value)| (format!("case.{name}"), value.clone())));
        self
    }

    /// With the node that a pod of the scenario is, or last was, bound to: `node.POD`.
    #[must_use]
    pub(crate) fn with_node_of(mut self, pod: &str, node: String) -> Self {
        self.0.insert(format!("{NODE_OF}{pod}"), node.into());
        self
    }

    /// With variables that stand for themselves.
    #[must_use]
    pub(super) fn with_own_names<'a>(mut self, names: impl Iterator<Item = &'a str>) -> Self {
        self.0.extend(names.map(|name| (name.to_owned(), format!("${{{name}}}").into())));
        self
    }

    /// What a variable holds.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Exactly these.
    pub(super) const fn of(values: BTreeMap<String, Value>) -> Self {
        Self(values)
    }

    /// The names, in order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    fn need(&self, name: &str) -> Result<&Value, SubstituteError> {
        self.get(name).ok_or_else(|| SubstituteError::Unknown {
            name: name.to_owned(),
            nearest: nearest(name, self.0.keys().map(String::as_str)).map(str::to_owned),
        })
    }
}

/// The value with every variable replaced.
pub fn substitute(value: &Value, vars: &Vars) -> Result<Value, SubstituteError> {
    let node = Node::from_value(value, crate::diagnostic::Position::default());
    match replace(&node, vars) {
        Ok(Some(node)) => Ok(node.to_value()),
        Ok(None) => {
            let name = value.as_str().unwrap_or_default().trim_start_matches("${").trim_end_matches("?}");
            Err(SubstituteError::Optional(name.to_owned()))
        }
        Err((_, error)) => Err(error),
    }
}

type Place = crate::diagnostic::Position;

/// The tree with every variable replaced; `None` where the whole of it was a variable that may be missing.
pub(crate) fn replace(node: &Node, vars: &Vars) -> Result<Option<Node>, (Place, SubstituteError)> {
    let kind = match &node.kind {
        Kind::Text(text) => {
            return text_node(text, vars, node.at).map_err(|error| (node.at, error));
        }
        Kind::List(items) => {
            let items: Result<Vec<_>, _> = items.iter().map(|item| replace(item, vars)).collect();
            Kind::List(items?.into_iter().flatten().collect())
        }
        Kind::Map(entries) => {
            let mut kept = Vec::with_capacity(entries.len());
            for (key, value) in entries {
                if key.text.contains("${") {
                    return Err((key.at, SubstituteError::Key(key.text.clone())));
                }
                if let Some(value) = replace(value, vars)? {
                    kept.push((key.clone(), value));
                }
            }
            Kind::Map(kept)
        }
        Kind::Null | Kind::Bool(_) | Kind::Number(_) => node.kind.clone(),
    };
    Ok(Some(Node { kind, at: node.at }))
}

fn text_node(text: &str, vars: &Vars, at: Place) -> Result<Option<Node>, SubstituteError> {
    let parts = parse(text)?;
    if let [Part::Variable { name, optional }] = parts[..] {
        return match vars.get(name) {
            Some(value) => Ok(Some(Node::from_value(value, at))),
            None if optional => Ok(None),
            None => vars.need(name).map(|value| Some(Node::from_value(value, at))),
        };
    }
    let mut rendered = String::with_capacity(text.len());
    for part in parts {
        match part {
            Part::Literal(literal) => rendered.push_str(literal),
            Part::Variable { name, optional: true } => {
                return Err(SubstituteError::Optional(name.to_owned()));
            }
            Part::Variable { name, optional: false } => match vars.need(name)? {
                Value::String(value) => rendered.push_str(value),
                value @ (Value::Number(_) | Value::Bool(_)) => rendered.push_str(&value.to_string()),
                Value::Null | Value::Array(_) | Value::Object(_) => {
                    return Err(SubstituteError::NotText(name.to_owned()));
                }
            },
        }
    }
    Ok(Some(Node { kind: Kind::Text(rendered), at }))
}

/// A piece of a text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Part<'a> {
    Literal(&'a str),
    Variable { name: &'a str, optional: bool },
}

/// Cuts a text at its variables.
pub(crate) fn parse(text: &str) -> Result<Vec<Part<'_>>, SubstituteError> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let inner = &rest[start + 2..];
        let malformed = || SubstituteError::Malformed(rest[start..].chars().take(40).collect());
        let end = inner.find('}').ok_or_else(malformed)?;
        let (name, optional) = match inner[..end].strip_suffix('?') {
            Some(name) => (name, true),
            None => (&inner[..end], false),
        };
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
        {
            return Err(malformed());
        }
        if start > 0 {
            parts.push(Part::Literal(&rest[..start]));
        }
        parts.push(Part::Variable { name, optional });
        rest = &inner[end + 1..];
    }
    if !rest.is_empty() {
        parts.push(Part::Literal(rest));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn vars() -> Vars {
        let shape: Shape =
            serde_json::from_value(json!({"cpu": "1900m", "memory": "4086Mi", "pods": 32})).unwrap();
        let case: Case =
            serde_json::from_value(json!({"name": "V1", "want": 5, "labels": {"a": "b"}, "on": true}))
                .unwrap();
        Vars::for_scenario("r1", "CB-ACT-001", "ns-1").with_pool("pool-1", &shape).with_case(&case)
    }

    #[rstest]
    #[case(json!("${case.want}"), json!(5))]
    #[case(json!("${case.on}"), json!(true))]
    #[case(json!("${case.labels}"), json!({"a": "b"}))]
    #[case(json!("${case.name}"), json!("V1"))]
    #[case(json!("${namespace}"), json!("ns-1"))]
    #[case(json!("${scenario}"), json!("cb-act-001"))]
    #[case(json!("${chunk.one_per_node}"), json!({"cpu": "1140m", "memory": "2451Mi"}))]
    #[case(json!("${chunk.half_node}"), json!({"cpu": "855m", "memory": "1838Mi"}))]
    #[case(json!("web-${run}-${case.want}/${pool}"), json!("web-r1-5/pool-1"))]
    #[case(json!(" ${case.want}"), json!(" 5"))]
    #[case(json!({"replicas": "${case.replicas?}", "percentage": "${case.want?}"}), json!({"percentage": 5}))]
    #[case(json!(["${case.a?}", "x", "${case.want?}"]), json!(["x", 5]))]
    #[case(json!({"a": [{"b": "${case.c?}"}]}), json!({"a": [{}]}))]
    #[case(json!("$run {run} $"), json!("$run {run} $"))]
    #[case(json!(null), json!(null))]
    fn substitutes(#[case] value: Value, #[case] expected: Value) {
        assert_eq!(substitute(&value, &vars()).unwrap(), expected);
    }

    #[rstest]
    #[case(json!("${rum}"), "unknown variable `${rum}`, did you mean `run`?")]
    #[case(json!("x-${case.wnat}"), "unknown variable `${case.wnat}`, did you mean `case.want`?")]
    #[case(json!({"a": "x-${case.want?}"}), "`${case.want?}` may be missing only where it is the whole value of a key or list item")]
    #[case(json!("${case.nothing?}"), "`${case.nothing?}` may be missing only where it is the whole value of a key or list item")]
    #[case(json!("x-${case.labels}"), "`${case.labels}` is a map or a list and can't be part of a text")]
    #[case(json!("${run"), "`${` begins a variable, but `${run` is none")]
    #[case(json!("${}"), "`${` begins a variable, but `${}` is none")]
    #[case(json!("${a b}"), "`${` begins a variable, but `${a b}` is none")]
    #[case(json!({"${run}": 1}), "a variable can't be part of a key: `${run}`")]
    fn refuses(#[case] value: Value, #[case] message: &str) {
        assert_eq!(substitute(&value, &vars()).unwrap_err().to_string(), message);
    }

    proptest! {
        #[test]
        fn a_text_without_variables_stays_as_it_is(text in "[^$]*") {
            prop_assert_eq!(substitute(&json!(text), &vars()).unwrap(), json!(text));
        }

        /// What a variable holds is not looked at again: a value can't smuggle in another variable.
        #[test]
        fn values_are_not_substituted_again(held in ".*") {
            let case: Case = serde_json::from_value(json!({"name": "a", "x": held})).unwrap();
            let vars = vars().with_case(&case);
            prop_assert_eq!(substitute(&json!("${case.x}"), &vars).unwrap(), json!(held));
            prop_assert_eq!(substitute(&json!("<${case.x}>"), &vars).unwrap(), json!(format!("<{held}>")));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".*") {
            let _ = substitute(&json!(text), &vars());
        }
    }
}
