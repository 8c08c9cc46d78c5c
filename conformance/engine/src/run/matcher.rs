//! Partial objects against seen ones, and a diff of only what differs.
//!
//! Maps match when every wanted key matches; lists of maps with a `type` or `name` are matched by that key; other
//! lists element by element; numbers by value; a wanted `null` means that the field is absent.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// One place where a seen object is not as wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    /// Path of the field, such as `status.conditions[Ready].status`.
    pub path: String,
    /// What was wanted; `None` where the field should be absent.
    pub wanted: Option<Value>,
    /// What was there; `None` where nothing was.
    pub seen: Option<Value>,
}

/// Everywhere that `seen` is not as `wanted`, in the order of the wanted object; empty if it matches.
#[must_use]
pub fn mismatches(wanted: &Value, seen: &Value) -> Vec<Mismatch> {
    let mut found = Vec::new();
    compare("", wanted, Some(seen), &mut found);
    found
}

/// The differences as lines: `-` what was wanted, `+` what was seen.
#[must_use]
pub fn diff(mismatches: &[Mismatch]) -> String {
    let mut text = String::new();
    for Mismatch { path, wanted, seen } in mismatches {
        let path = if path.is_empty() { "(object)" } else { path };
        // writing to a String can't fail
        let _ = writeln!(text, "- {path}: {}", render(wanted.as_ref()));
        let _ = writeln!(text, "+ {path}: {}", render(seen.as_ref()));
    }
    text
}

fn render(value: Option<&Value>) -> String {
    value.map_or_else(|| "absent".to_owned(), Value::to_string)
}

fn compare(path: &str, wanted: &Value, seen: Option<&Value>, found: &mut Vec<Mismatch>) {
    let seen = seen.filter(|value| !value.is_null());
    let matches = match (wanted, seen) {
        (Value::Null, seen) => {
            if let Some(seen) = seen {
                found.push(Mismatch { path: path.to_owned(), wanted: None, seen: Some(seen.clone()) });
            }
            return;
        }
        (Value::Object(wanted), Some(Value::Object(seen))) => {
            for (key, value) in wanted {
                compare(&field(path, key), value, seen.get(key), found);
            }
            return;
        }
        (Value::Array(wanted), Some(Value::Array(seen))) => {
            if let Some(key) = list_key(wanted) {
                compare_keyed(path, key, wanted, seen, found);
                return;
            }
            if wanted.len() == seen.len() {
                for (index, (wanted, seen)) in wanted.iter().zip(seen).enumerate() {
                    compare(&format!("{path}[{index}]"), wanted, Some(seen), found);
                }
                return;
            }
            false
        }
        // only absences are wanted below, and nothing at all is there
        (Value::Object(wanted), None) if !wanted.is_empty() && wanted.values().all(only_absences) => true,
        (Value::Number(wanted), Some(Value::Number(seen))) => same_number(wanted, seen),
        (wanted, Some(seen)) => wanted == seen,
        (_, None) => false,
    };
    if !matches {
        found.push(Mismatch { path: path.to_owned(), wanted: Some(wanted.clone()), seen: seen.cloned() });
    }
}

fn compare_keyed(path: &str, key: &str, wanted: &[Value], seen: &[Value], found: &mut Vec<Mismatch>) {
    for wanted in wanted {
        let name = &wanted[key];
        let element = seen.iter().find(|seen| &seen[key] == name);
        compare(&format!("{path}[{}]", name.as_str().unwrap_or_default()), wanted, element, found);
    }
}

/// The key by which the elements of a list are told apart, if each of them has it.
fn list_key(list: &[Value]) -> Option<&'static str> {
    let all_have = |key: &&str| !list.is_empty() && list.iter().all(|value| value[*key].is_string());
    ["type", "name"].into_iter().find(all_have)
}

fn only_absences(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => !map.is_empty() && map.values().all(only_absences),
        _ => false,
    }
}

fn same_number(a: &serde_json::Number, b: &serde_json::Number) -> bool {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => a == b,
        // at least one of them has a fraction, so the nearest float is what was written
        _ => a.as_f64() == b.as_f64(),
    }
}

/// Path of a key: dotted, in brackets where the key itself has a dot or slash.
fn field(path: &str, key: &str) -> String {
    if key.contains(['.', '/']) {
        format!("{path}[{key}]")
    } else if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

/// Removes from a seen object what nobody compares by hand, so that it can be shown.
#[must_use]
pub fn presentable(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

/// The parts of `seen` that `wanted` speaks of, for the "last seen" of a message.
#[must_use]
pub fn shown(wanted: &Value, seen: &Value) -> Value {
    match (wanted, seen) {
        (Value::Object(wanted), Value::Object(seen)) => {
            let mut part = Map::new();
            for (key, wanted) in wanted {
                if let Some(seen) = seen.get(key) {
                    part.insert(key.clone(), shown(wanted, seen));
                }
            }
            Value::Object(part)
        }
        _ => presentable(seen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case::subset(json!({"a": 1}), json!({"a": 1, "b": 2}))]
    #[case::number_by_value(json!({"a": 1}), json!({"a": 1.0}))]
    #[case::big_numbers(json!(9_007_199_254_740_993_i64), json!(9_007_199_254_740_993_i64))]
    #[case::null_is_absent(json!({"a": null}), json!({}))]
    #[case::null_is_null(json!({"a": null}), json!({"a": null}))]
    #[case::nested_absence(json!({"status": {"replicas": null}}), json!({}))]
    #[case::by_type(
        json!({"conditions": [{"type": "Ready", "status": "True"}]}),
        json!({"conditions": [{"type": "Other"}, {"type": "Ready", "status": "True", "reason": "R"}]})
    )]
    #[case::by_name(
        json!([{"name": "b", "image": "x"}]),
        json!([{"name": "a"}, {"name": "b", "image": "x"}])
    )]
    #[case::list(json!([1, {"a": 1}]), json!([1, {"a": 1, "b": 2}]))]
    #[case::empty_list(json!([]), json!([]))]
    fn matches(#[case] wanted: Value, #[case] seen: Value) {
        similar_asserts::assert_eq!(mismatches(&wanted, &seen), Vec::new());
    }

    #[rstest]
    #[case::value(json!({"a": {"b": 1}}), json!({"a": {"b": 2}}), "- a.b: 1\n+ a.b: 2\n")]
    #[case::string_is_no_number(json!({"a": "1"}), json!({"a": 1}), "- a: \"1\"\n+ a: 1\n")]
    #[case::big_numbers(
        json!(9_007_199_254_740_993_i64),
        json!(9_007_199_254_740_992_i64),
        "- (object): 9007199254740993\n+ (object): 9007199254740992\n"
    )]
    #[case::missing(json!({"a": {"b": 1}}), json!({}), "- a: {\"b\":1}\n+ a: absent\n")]
    #[case::present(json!({"a": null}), json!({"a": 0}), "- a: absent\n+ a: 0\n")]
    #[case::empty_map_is_not_absent(json!({"a": {}}), json!({}), "- a: {}\n+ a: absent\n")]
    #[case::condition(
        json!({"c": [{"type": "Ready", "status": "True"}]}),
        json!({"c": [{"type": "Ready", "status": "False", "reason": "R"}]}),
        "- c[Ready].status: \"True\"\n+ c[Ready].status: \"False\"\n"
    )]
    #[case::missing_condition(
        json!({"c": [{"type": "Ready", "status": "True"}]}),
        json!({"c": []}),
        "- c[Ready]: {\"status\":\"True\",\"type\":\"Ready\"}\n+ c[Ready]: absent\n"
    )]
    #[case::length(json!([1]), json!([1, 2]), "- (object): [1]\n+ (object): [1,2]\n")]
    #[case::empty_list_is_no_subset(json!({"a": []}), json!({"a": [{"name": "x"}]}), "- a: []\n+ a: [{\"name\":\"x\"}]\n")]
    #[case::label(json!({"l": {"a.b/c": "1"}}), json!({"l": {"a.b/c": "2"}}), "- l[a.b/c]: \"1\"\n+ l[a.b/c]: \"2\"\n")]
    fn differs(#[case] wanted: Value, #[case] seen: Value, #[case] expected: &str) {
        similar_asserts::assert_eq!(diff(&mismatches(&wanted, &seen)), expected);
    }

    #[test]
    fn shows_only_what_was_asked_for() {
        let seen = json!({"spec": {"x": 1}, "status": {"replicas": 2, "conditions": [{"type": "Ready"}]}});
        similar_asserts::assert_eq!(
            shown(&json!({"status": {"replicas": 3}, "kind": "X"}), &seen),
            json!({"status": {"replicas": 2}})
        );
    }
}
