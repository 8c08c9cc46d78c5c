//! YAML text to a tree that knows where everything stands.

use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Number, Value};
use serde_saphyr::{Error, Location, MessageFormatter, Spanned, UserMessageFormatter};

use crate::diagnostic::{Diagnostic, Position};

/// Larger files are refused before they are read: the largest sensible scenario has a tenth of it.
pub(crate) const MAX_BYTES: usize = 256 * 1024;
/// Most nodes of a file, those that aliases repeat included.
const MAX_NODES: usize = 20_000;
/// Deepest nesting.
const MAX_DEPTH: usize = 48;

/// A node and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub kind: Kind,
    pub at: Position,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    pub text: String,
    pub at: Position,
}

impl Node {
    /// Reads one document.
    pub fn parse(file: &str, text: &str) -> Result<Self, Diagnostic> {
        if text.len() > MAX_BYTES {
            let message =
                format!("the file has {} bytes, more than the {MAX_BYTES} that are read", text.len());
            return Err(Diagnostic::new(file, "", Position::default(), message));
        }
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_nodes: MAX_NODES,
                max_depth: MAX_DEPTH,
                max_aliases: 200,
                max_anchors: 200,
            },
            alias_limits: serde_saphyr::alias_limits! {
                max_total_replayed_events: 2 * MAX_NODES,
            },
            emit_comments: false,
            leading_zero_numbers_as_strings: true,
            underscored_numbers_as_strings: true,
            reject_unsupported_tags: true,
            with_snippet: false,
        };
        serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let at = error.location().map(position).unwrap_or_default();
            Diagnostic::new(file, text, at, explain(&error, text, at))
        })
    }

    /// The value under a key of a map.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match &self.kind {
            Kind::Map(entries) => entries.iter().find(|(name, _)| name.text == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Where the key stands, or the map where it is missing.
    pub fn key_at(&self, key: &str) -> Position {
        match &self.kind {
            Kind::Map(entries) => {
                entries.iter().find(|(name, _)| name.text == key).map_or(self.at, |(name, _)| name.at)
            }
            _ => self.at,
        }
    }

    /// The items of a list; none where it is something else.
    pub fn items(&self) -> &[Self] {
        match &self.kind {
            Kind::List(items) => items,
            _ => &[],
        }
    }

    /// A value that stands nowhere else than at `at`.
    pub fn from_value(value: &Value, at: Position) -> Self {
        let kind = match value {
            Value::Null => Kind::Null,
            Value::Bool(value) => Kind::Bool(*value),
            Value::Number(value) => Kind::Number(value.clone()),
            Value::String(value) => Kind::Text(value.clone()),
            Value::Array(items) => Kind::List(items.iter().map(|item| Self::from_value(item, at)).collect()),
            Value::Object(map) => Kind::Map(
                map.iter()
                    .map(|(key, value)| (Key { text: key.clone(), at }, Self::from_value(value, at)))
                    .collect(),
            ),
        };
        Self { kind, at }
    }

    /// The plain value.
    pub fn to_value(&self) -> Value {
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool(value) => Value::Bool(*value),
            Kind::Number(value) => Value::Number(value.clone()),
            Kind::Text(value) => Value::String(value.clone()),
            Kind::List(items) => Value::Array(items.iter().map(Self::to_value).collect()),
            Kind::Map(entries) => Value::Object(
                entries
                    .iter()
                    .map(|(key, value)| (key.text.clone(), value.to_value()))
                    .collect::<Map<_, _>>(),
            ),
        }
    }
}

fn position(location: Location) -> Position {
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    Position {
        line: count(location.line()),
        column: count(location.column()),
        width: count(location.span().len()),
    }
}

/// The message for what the YAML reader refused.
fn explain(error: &Error, text: &str, at: Position) -> String {
    let mut error = error.without_snippet();
    while let Error::AliasError { error: inner, .. } = error {
        error = inner.without_snippet();
    }
    match error {
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. } => {
            format!(
                "larger than what is read: at most {MAX_NODES} values, {MAX_DEPTH} deep, aliases included"
            )
        }
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("the key `{key}` is here twice"),
        Error::MultipleDocuments { .. } => {
            "a file holds one document, and here a second one begins".to_owned()
        }
        error => {
            let line = text.lines().nth(at.line.saturating_sub(1)).unwrap_or_default();
            let hint = if line.contains("${") && line.contains(['{', '[']) {
                "; inside { } and [ ] a variable needs quotes: \"${pool}\""
            } else {
                ""
            };
            format!("not YAML: {}{hint}", UserMessageFormatter.format_message(error))
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value: kind, referenced, .. } = Spanned::<Kind>::deserialize(deserializer)?;
        let mut at = position(referenced);
        // a map without braces begins with its first key
        if let Kind::Map(entries) = &kind
            && let Some((first, _)) = entries.first()
            && (first.at.line, first.at.column) == (at.line, at.column)
        {
            at.width = first.at.width;
        }
        Ok(Self { kind, at })
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Kind;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("any value")
            }

            fn visit_unit<E>(self) -> Result<Kind, E> {
                Ok(Kind::Null)
            }

            fn visit_none<E>(self) -> Result<Kind, E> {
                Ok(Kind::Null)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Kind, E> {
                Ok(Kind::Bool(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Kind, E> {
                Ok(Kind::Number(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Kind, E> {
                Ok(Kind::Number(value.into()))
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Kind, E> {
                Number::from_f64(value).map(Kind::Number).ok_or_else(|| E::custom("not a finite number"))
            }

            fn visit_str<E>(self, value: &str) -> Result<Kind, E> {
                Ok(Kind::Text(value.to_owned()))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Kind, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    items.push(item);
                }
                Ok(Kind::List(items))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Kind, A::Error> {
                let mut entries = Vec::new();
                while let Some(key) = map.next_key::<Spanned<String>>()? {
                    let key = Key { text: key.value, at: position(key.referenced) };
                    entries.push((key, map.next_value()?));
                }
                Ok(Kind::Map(entries))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}
