//! JSON Schemas of the files that people write, and the reference of the language for the README. Both come from
//! the types that read the files, so neither can go stale.

use std::fmt::Write;

use schemars::{
    JsonSchema, Schema,
    generate::SchemaSettings,
    transform::{Transform, transform_subschemas},
};
use serde_json::{Map, Value, json};

use crate::{
    implementation::Implementation,
    scenario::{Step, lift::Document},
    waits::{ClusterKind, Wait, Waits},
};

/// Definitions of the head of a scenario, where no variable can stand.
const HEAD: [&str; 15] = [
    "ApiVersion",
    "Case",
    "Feature",
    "Hook",
    "Isolation",
    "Level",
    "Metadata",
    "Needs",
    "PoolNeed",
    "Profile",
    "ScenarioKind",
    "Settings",
    "ShapeNeed",
    "Source",
    "Spec",
];

/// Schema of a scenario's file. Everywhere in the steps a variable may stand instead of the value.
#[must_use]
pub fn scenario() -> Value {
    let mut schema = generate::<Document>().to_value();
    for (name, definition) in schema["$defs"].as_object_mut().into_iter().flatten() {
        if HEAD.contains(&name.as_str()) {
            continue;
        }
        if let Ok(inner) = <&mut Schema>::try_from(&mut *definition) {
            AllowVariables.transform(inner);
            if name != "Step" {
                allow_variable(inner, &["object", "string"]);
            }
        }
    }
    schema
}

/// Schema of an implementation's declaration.
#[must_use]
pub fn implementation() -> Value {
    generate::<Implementation>().to_value()
}

fn generate<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().for_deserialize().into_generator().into_root_schema_for::<T>()
}

/// Lets variables stand for numbers and lists. Inner parts first: what is put in is not looked at again.
struct AllowVariables;

impl Transform for AllowVariables {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        allow_variable(schema, &["integer", "array"]);
    }
}

/// Lets a whole-value variable stand where a value of these types is wanted, or one of a few words.
fn allow_variable(schema: &mut Schema, types: &[&str]) {
    let Some(object) = schema.as_object_mut() else { return };
    let wanted = match object.get("type") {
        Some(Value::String(kind)) => types.contains(&kind.as_str()),
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).any(|kind| types.contains(&kind)),
        // words with a description each
        None => types.contains(&"string") && object.contains_key("oneOf"),
        Some(_) => false,
    };
    if wanted {
        let description = object.remove("description");
        let value = Value::Object(std::mem::take(object));
        let variable = json!({"type": "string", "pattern": r"^\$\{[A-Za-z0-9._-]+\??\}$"});
        object.extend(description.map(|text| ("description".to_owned(), text)));
        object.insert("anyOf".to_owned(), json!([value, variable]));
    }
}

/// The reference of verbs, waits and rows as Markdown.
#[must_use]
pub fn reference() -> String {
    let root = generate::<Step>().to_value();
    let mut text = String::from("| verb | keys (**required**) | what it does |\n|---|---|---|\n");
    for variant in root["oneOf"].as_array().into_iter().flatten() {
        let properties = variant["properties"].as_object();
        for (verb, body) in properties.into_iter().flatten() {
            let description = one_line(&variant["description"]);
            let _ = writeln!(text, "| `{verb}` | {} | {description} |", keys(resolve(&root, body)));
        }
    }
    text.push_str("\n| wait | embedded | kind | existing | written limit |\n|---|---|---|---|---|\n");
    let table = |cluster| Waits::new(cluster, Some(crate::implementation::Dialect::Karpenter));
    let clusters = [ClusterKind::Embedded, ClusterKind::Kind, ClusterKind::Existing].map(table);
    for wait in Wait::all() {
        let [embedded, kind, existing] = clusters.each_ref().map(|waits| waits.patience(wait).as_secs());
        let limit = clusters[0]
            .limit(wait)
            .map(|limit| format!("{} s ({})", limit.duration.as_secs(), limit.source))
            .unwrap_or_default();
        let note = if wait.is_length() { " (a length, for `hold`)" } else { "" };
        let _ = writeln!(text, "| `{wait}`{note} | {embedded} s | {kind} s | {existing} s | {limit} |");
    }
    text
}

fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str().and_then(|path| root.pointer(path.trim_start_matches('#'))) {
        Some(found) => found,
        None => schema,
    }
}

fn keys(schema: &Value) -> String {
    let nothing = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&nothing);
    if properties.is_empty() {
        return schema["description"]
            .as_str()
            .map_or_else(|| "a name".to_owned(), |_| one_line(&schema["description"]));
    }
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let keys = properties
        .keys()
        .map(|key| if required.contains(&key.as_str()) { format!("**{key}**") } else { key.clone() });
    keys.collect::<Vec<_>>().join(", ")
}

fn one_line(text: &Value) -> String {
    text.as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|")
}
