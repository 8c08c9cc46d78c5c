//! From the tree to typed values, by serde: unknown keys, unknown words and wrong types become faults with a place.

use std::fmt;

use serde::{
    Deserialize,
    de::{self, IntoDeserializer, Unexpected, value::StrDeserializer},
    forward_to_deserialize_any,
};

use crate::{
    diagnostic::Position,
    scenario::raw::{Key, Kind, Node},
    words::{did_you_mean, nearest},
};

/// What is wrong, and where once that is known.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Fault {
    pub at: Option<Position>,
    pub message: String,
}

/// How the message for an unknown word begins until it is known what it should have been.
const UNKNOWN_WORD: &str = "unknown word ";

/// Reads a typed value out of a node.
pub(crate) fn read<'de, T: Deserialize<'de>>(node: &'de Node) -> Result<T, Fault> {
    T::deserialize(node)
}

impl Fault {
    pub fn new(at: Position, message: impl Into<String>) -> Self {
        Self { at: Some(at), message: message.into() }
    }

    /// Says what an unknown word should have been.
    fn of(mut self, name: &str) -> Self {
        if let Some(rest) = self.message.strip_prefix(UNKNOWN_WORD) {
            self.message = format!("unknown {} {rest}", noun(name));
        }
        self
    }

    /// Places it, unless something inside has placed it better.
    fn or_at(mut self, at: Position) -> Self {
        self.at.get_or_insert(at);
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { at: None, message: message.to_string() }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let expected = plain(expected);
        let hint = match found {
            Unexpected::Bool(_) | Unexpected::Signed(_) | Unexpected::Unsigned(_) | Unexpected::Float(_)
                if expected == "a text" =>
            {
                ": put it in quotes"
            }
            _ => "",
        };
        Self::custom(format!("expected {expected}, found {}{hint}", describe(found)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::custom(format!("expected {}, found {}", plain(expected), describe(found)))
    }

    fn unknown_variant(word: &str, expected: &'static [&'static str]) -> Self {
        Self::custom(unknown("word", word, expected))
    }

    fn unknown_field(key: &str, expected: &'static [&'static str]) -> Self {
        Self::custom(unknown("key", key, expected))
    }

    fn missing_field(key: &'static str) -> Self {
        Self::custom(format!("`{key}` is missing"))
    }
}

/// What a word of these is called, by the name of the type that reads it.
fn noun(name: &str) -> &'static str {
    match name {
        "Step" => "verb",
        "Wait" => "wait",
        "Feature" => "feature",
        "Profile" => "profile",
        "Level" => "level",
        "Dialect" => "dialect",
        "Hook" => "hook",
        "Setting" => "setting",
        "ApiVersion" => "version",
        "ScenarioKind" | "ImplementationKind" => "kind",
        _ => "word",
    }
}

/// An unknown word with the nearest right one, or with all of them where they are few.
fn unknown(what: &str, word: &str, expected: &[&str]) -> String {
    let hint = match nearest(word, expected.iter().copied()) {
        Some(word) => did_you_mean(Some(word)),
        None if expected.is_empty() => String::new(),
        None if expected.len() > 20 => String::new(),
        None => format!(", expected one of `{}`", expected.join("`, `")),
    };
    format!("unknown {what} `{word}`{hint}")
}

/// What serde calls the expected thing, in words for people.
fn plain(expected: &dyn de::Expected) -> String {
    let expected = expected.to_string();
    match expected.as_str() {
        "a string" => "a text".to_owned(),
        "u16" | "u32" | "u64" => "a whole number, 0 or more".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        other => match other.split_once(' ') {
            Some(("struct" | "variant", _)) => "a map of keys".to_owned(),
            Some(("enum", _)) => "a word, or a map with one key".to_owned(),
            _ => expected,
        },
    }
}

fn describe(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(value) => format!("{value}"),
        Unexpected::Unsigned(value) => format!("the number {value}"),
        Unexpected::Signed(value) => format!("the number {value}"),
        Unexpected::Float(value) => format!("the number {value}"),
        Unexpected::Str(value) => format!("the text `{value}`"),
        Unexpected::Unit | Unexpected::Option => "nothing".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a map".to_owned(),
        other => other.to_string(),
    }
}

impl<'de> de::Deserializer<'de> for &'de Node {
    type Error = Fault;

    fn deserialize_any<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let result = match &self.kind {
            Kind::Null => visitor.visit_unit(),
            Kind::Bool(value) => visitor.visit_bool(*value),
            Kind::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(value), ..) => visitor.visit_u64(value),
                (None, Some(value), _) => visitor.visit_i64(value),
                (None, None, Some(value)) => visitor.visit_f64(value),
                (None, None, None) => Err(de::Error::custom("a number out of range")),
            },
            Kind::Text(text) => visitor.visit_borrowed_str(text),
            Kind::List(items) => visitor.visit_seq(Items(items.iter())),
            Kind::Map(entries) => visitor.visit_map(Entries { rest: entries.iter(), value: None }),
        };
        result.map_err(|fault| fault.or_at(self.at))
    }

    fn deserialize_option<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.kind {
            Kind::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
        .map_err(|fault| fault.or_at(self.at))
    }

    fn deserialize_newtype_struct<V: de::Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self).map_err(|fault| fault.or_at(self.at))
    }

    fn deserialize_enum<V: de::Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let result = match &self.kind {
            Kind::Text(text) => Word(text).deserialize_enum(name, variants, visitor),
            Kind::Map(entries) => {
                if let [(key, value)] = entries.as_slice() {
                    visitor.visit_enum(Variant { name, key, value })
                } else {
                    let keys: Vec<_> = entries.iter().map(|(key, _)| format!("`{}`", key.text)).collect();
                    let found = if keys.is_empty() { "none".to_owned() } else { keys.join(", ") };
                    Err(Fault {
                        at: entries.get(1).map(|(key, _)| key.at),
                        message: format!("expected exactly one {}, found {found}", noun(name)),
                    })
                }
            }
            // the visitor says what it expected
            _ => return self.deserialize_any(visitor),
        };
        result.map_err(|fault| fault.of(name).or_at(self.at))
    }

    fn deserialize_struct<V: de::Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match self.kind {
            // serde would read a list as the fields in their order
            Kind::List(_) => Err(Fault::new(self.at, "expected a map of keys, found a list")),
            _ => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq
        tuple tuple_struct map identifier ignored_any
    }
}

/// A key, or a text of which only a few are right.
struct Word<'de>(&'de str);

impl<'de> de::Deserializer<'de> for Word<'de> {
    type Error = Fault;

    fn deserialize_any<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_borrowed_str(self.0)
    }

    fn deserialize_enum<V: de::Visitor<'de>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let word: StrDeserializer<'_, Fault> = self.0.into_deserializer();
        visitor.visit_enum(word).map_err(|fault| fault.of(name))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

struct Items<'de>(std::slice::Iter<'de, Node>);

impl<'de> de::SeqAccess<'de> for Items<'de> {
    type Error = Fault;

    fn next_element_seed<T: de::DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        self.0.next().map(|item| seed.deserialize(item).map_err(|fault| fault.or_at(item.at))).transpose()
    }
}

struct Entries<'de> {
    rest: std::slice::Iter<'de, (Key, Node)>,
    value: Option<&'de (Key, Node)>,
}

impl<'de> de::MapAccess<'de> for Entries<'de> {
    type Error = Fault;

    fn next_key_seed<K: de::DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        self.value = self.rest.next();
        self.value
            .map(|(key, _)| seed.deserialize(Word(&key.text)).map_err(|fault| fault.or_at(key.at)))
            .transpose()
    }

    fn next_value_seed<V: de::DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        match self.value.take() {
            // what a type says of a value that it has read has no place of its own
            Some((_, value)) => seed.deserialize(value).map_err(|fault| fault.or_at(value.at)),
            None => Err(de::Error::custom("a value without a key")),
        }
    }
}

struct Variant<'de> {
    name: &'static str,
    key: &'de Key,
    value: &'de Node,
}

impl<'de> de::EnumAccess<'de> for Variant<'de> {
    type Error = Fault;
    type Variant = &'de Node;

    fn variant_seed<V: de::DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, &'de Node), Fault> {
        let variant =
            seed.deserialize(Word(&self.key.text)).map_err(|fault| fault.of(self.name).or_at(self.key.at))?;
        Ok((variant, self.value))
    }
}

impl<'de> de::VariantAccess<'de> for &'de Node {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        Err(Fault::new(self.at, "this word takes no value"))
    }

    fn newtype_variant_seed<T: de::DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Fault> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: de::Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        de::Deserializer::deserialize_any(self, visitor)
    }

    fn struct_variant<V: de::Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        de::Deserializer::deserialize_any(self, visitor)
    }
}
