//! Objects as scenarios name and describe them.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Map, Value};

/// The name of an object.
#[derive(Clone, Debug, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Target {
    /// API version, such as `apps/v1`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Namespace, where it is not the scenario's.
    pub namespace: Option<String>,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

/// A complete object to create or apply.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// Which object it is.
    pub target: Target,
    /// The object as it is written.
    pub body: Value,
}

/// One manifest, or a list of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifests(pub Vec<Manifest>);

/// An object and what it must look like.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    /// Which object.
    pub target: Target,
    /// What it must contain, without `apiVersion`, `kind` and its name: maps by subset, lists of maps with `type` or
    /// `name` by that key, other lists element by element, numbers by value, `null` = absent.
    pub partial: Map<String, Value>,
}

/// The short name of an object of the scenario: `Kind/name`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ObjectName {
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
}

impl<'de> Deserialize<'de> for Manifest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let body = Map::deserialize(deserializer)?;
        let text =
            |map: &Map<String, Value>, key: &str| map.get(key).and_then(Value::as_str).map(str::to_owned);
        let metadata = body.get("metadata").and_then(Value::as_object);
        let target = Target {
            api_version: text(&body, "apiVersion").ok_or_else(|| D::Error::missing_field("apiVersion"))?,
            kind: text(&body, "kind").ok_or_else(|| D::Error::missing_field("kind"))?,
            name: metadata
                .and_then(|metadata| text(metadata, "name"))
                .ok_or_else(|| D::Error::missing_field("metadata.name"))?,
            namespace: metadata.and_then(|metadata| text(metadata, "namespace")),
        };
        Ok(Self { target, body: Value::Object(body) })
    }
}

impl<'de> Deserialize<'de> for Expected {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut partial = Map::deserialize(deserializer)?;
        let take = |map: &mut Map<String, Value>, key: &str| match map.remove(key) {
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(D::Error::custom(format!("`{key}` must be a text"))),
            None => Ok(None),
        };
        let api_version =
            take(&mut partial, "apiVersion")?.ok_or_else(|| D::Error::missing_field("apiVersion"))?;
        let kind = take(&mut partial, "kind")?.ok_or_else(|| D::Error::missing_field("kind"))?;
        let mut name = take(&mut partial, "name")?;
        let mut namespace = take(&mut partial, "namespace")?;
        if let Some(Value::Object(metadata)) = partial.get_mut("metadata") {
            name = name.or(take(metadata, "name")?);
            namespace = namespace.or(take(metadata, "namespace")?);
            if metadata.is_empty() {
                partial.remove("metadata");
            }
        }
        let name = name.ok_or_else(|| D::Error::missing_field("name"))?;
        Ok(Self { target: Target { api_version, kind, name, namespace }, partial })
    }
}

impl<'de> Deserialize<'de> for Manifests {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Manifests;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a manifest or a list of manifests")
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<Manifests, A::Error> {
                let mut manifests = Vec::new();
                while let Some(manifest) = list.next_element()? {
                    manifests.push(manifest);
                }
                if manifests.is_empty() {
                    return Err(A::Error::custom("an empty list of manifests does nothing"));
                }
                Ok(Manifests(manifests))
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<Manifests, A::Error> {
                let manifest = Manifest::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                Ok(Manifests(vec![manifest]))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl<'de> Deserialize<'de> for ObjectName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.split_once('/') {
            Some((kind, name)) if !kind.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Self { kind: kind.to_owned(), name: name.to_owned() })
            }
            _ => Err(D::Error::custom(format!("`{text}` is not of the form Kind/name"))),
        }
    }
}

impl JsonSchema for Manifest {
    fn schema_name() -> Cow<'static, str> {
        "Manifest".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A complete object to create or apply.",
            "type": "object",
            "required": ["apiVersion", "kind", "metadata"],
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string"}, "namespace": {"type": "string"}},
                },
            },
        })
    }
}

impl JsonSchema for Expected {
    fn schema_name() -> Cow<'static, str> {
        "Expected".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "An object and what it must look like; its name is `name` or `metadata.name`.",
            "type": "object",
            "required": ["apiVersion", "kind"],
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "name": {"type": "string"},
                "namespace": {"type": "string"},
                "metadata": {"type": "object"},
            },
        })
    }
}

impl JsonSchema for Manifests {
    fn schema_name() -> Cow<'static, str> {
        "Manifests".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let manifest = generator.subschema_for::<Manifest>();
        json_schema!({
            "description": "One manifest, or a list of them.",
            "anyOf": [manifest.clone(), {"type": "array", "items": manifest, "minItems": 1}],
        })
    }
}

impl JsonSchema for ObjectName {
    fn schema_name() -> Cow<'static, str> {
        "ObjectName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"description": "Kind/name", "type": "string", "pattern": "^[^/]+/[^/]+$"})
    }
}
