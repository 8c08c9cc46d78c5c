//! Counting nodes and claims.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    implementation::Dialect,
    rows::{Feature, Requirement},
    waits::Wait,
};

/// `nodes` and `claims`: at least one of its conditions is given.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(try_from = "RawNodeCount")]
pub struct NodeCount {
    /// Requirement.
    pub req: Option<Requirement>,
    /// Dialect.
    pub dialect: Option<Dialect>,
    /// Feature.
    pub feature: Option<Feature>,
    /// Exactly so many now.
    pub equals: Option<Count>,
    /// So many or more now.
    pub at_least: Option<Count>,
    /// So many or fewer now.
    pub at_most: Option<Count>,
    /// UIDs that were born since the scenario began, those that are gone again included.
    pub born: Option<u32>,
    /// UIDs that were lost since the scenario began.
    pub lost: Option<u32>,
    /// `provision` unless told, `release` where `baseline` is waited for.
    pub within: Option<Wait>,
}

impl NodeCount {
    /// Whether it waits for a return to the baseline.
    #[must_use]
    pub fn is_return(&self) -> bool {
        [self.equals, self.at_most].contains(&Some(Count::Baseline))
    }

    /// The conditions, one line.
    #[must_use]
    pub fn describe(&self) -> String {
        let count = |name: &str, count: Option<Count>| {
            count.map(|count| match count {
                Count::Exactly(number) => format!("{name} {number}"),
                Count::Baseline => format!("{name} baseline"),
            })
        };
        let number = |name: &str, number: Option<u32>| number.map(|number| format!("{name} {number}"));
        let parts = [
            count("equals", self.equals),
            count("at least", self.at_least),
            count("at most", self.at_most),
            number("born", self.born),
            number("lost", self.lost),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// A node count as it is written.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawNodeCount {
    /// Requirement.
    req: Option<Requirement>,
    /// Dialect.
    dialect: Option<Dialect>,
    /// Feature.
    feature: Option<Feature>,
    /// Exactly so many now.
    equals: Option<Count>,
    /// So many or more now.
    at_least: Option<Count>,
    /// So many or fewer now.
    at_most: Option<Count>,
    /// UIDs that were born since the scenario began, those that are gone again included.
    born: Option<u32>,
    /// UIDs that were lost since the scenario began.
    lost: Option<u32>,
    /// `provision` unless told, `release` where `baseline` is waited for.
    within: Option<Wait>,
}

impl TryFrom<RawNodeCount> for NodeCount {
    type Error = &'static str;

    fn try_from(raw: RawNodeCount) -> Result<Self, Self::Error> {
        let RawNodeCount { req, dialect, feature, equals, at_least, at_most, born, lost, within } = raw;
        if [equals, at_least, at_most].iter().all(Option::is_none) && born.is_none() && lost.is_none() {
            return Err("say how many: `equals`, `atLeast`, `atMost`, `born` or `lost`");
        }
        Ok(Self { req, dialect, feature, equals, at_least, at_most, born, lost, within })
    }
}

/// A number, or as many as before the first step.
#[derive(Clone, Copy, Debug, Eq, JsonSchema, PartialEq)]
#[schemars(untagged)]
pub enum Count {
    /// So many.
    Exactly(u32),
    /// As many as before the first step.
    #[schemars(with = "Baseline")]
    Baseline,
}

/// The word for as many as before the first step.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum Baseline {
    /// As many as before the first step.
    Baseline,
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl serde::de::Visitor<'_> for Visitor {
            type Value = Count;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number or `baseline`")
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Count, E> {
                u32::try_from(number).map(Count::Exactly).map_err(E::custom)
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Count, E> {
                u32::try_from(number).map(Count::Exactly).map_err(E::custom)
            }

            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<Count, E> {
                match word {
                    "baseline" => Ok(Count::Baseline),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(word), &self)),
                }
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}
