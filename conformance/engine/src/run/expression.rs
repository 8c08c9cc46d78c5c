//! CEL expressions over an object, with the functions that Kubernetes adds to the language.

use std::{collections::HashMap, sync::Arc};

use kube::core::cel::{
    KubeCelExt,
    cel::{
        Context, Program, Value as Cel,
        objects::{Key, Map},
    },
};
use serde_json::Value;

/// A compiled expression with the variable `self`, and `before` where an earlier version is known.
#[derive(Debug)]
pub struct Expression {
    text: String,
    program: Program,
}

/// An expression that is not CEL.
#[derive(Debug, thiserror::Error)]
#[error("\"{text}\" is not a CEL expression: {cause}")]
pub struct NotCel {
    text: String,
    cause: String,
}

impl Expression {
    /// Compiles `text`.
    pub fn compile(text: &str) -> Result<Self, NotCel> {
        match Program::compile(text) {
            Ok(program) => Ok(Self { text: text.to_owned(), program }),
            Err(errors) => Err(NotCel { text: text.to_owned(), cause: errors.to_string() }),
        }
    }

    /// Whether the expression is true of `object`; else what it is instead. A field that is not there (yet) is an error of the
    /// evaluation and counts as not true.
    pub fn holds(&self, object: &Value, before: Option<&Value>) -> Result<(), String> {
        let mut context = Context::default().with_all();
        context.add_variable_from_value("self", to_cel(object));
        if let Some(before) = before {
            context.add_variable_from_value("before", to_cel(before));
        }
        match self.program.execute(&context) {
            Ok(Cel::Bool(true)) => Ok(()),
            Ok(Cel::Bool(false)) => Err("false".to_owned()),
            Ok(other) => Err(format!("{:?}, not a boolean", other.type_of())),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The expression as written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Whole numbers become signed, as the API server types them: CEL has no arithmetic between signed and unsigned.
fn to_cel(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(value) => Cel::Bool(*value),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => Cel::Int(int),
            (None, Some(uint)) => Cel::UInt(uint),
            (None, None) => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(list) => Cel::List(Arc::new(list.iter().map(to_cel).collect())),
        Value::Object(fields) => {
            let map: HashMap<_, _> = fields
                .iter()
                .map(|(key, value)| (Key::String(Arc::new(key.clone())), to_cel(value)))
                .collect();
            Cel::Map(Map { map: Arc::new(map) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case("self.status.replicas == 3", Ok(()))]
    #[case("self.status.replicas + 1 == 4", Ok(()))]
    #[case("self.status.replicas == before.status.replicas + 1", Ok(()))]
    #[case("self.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')", Ok(()))]
    #[case("self.metadata.labels['a.b/c'] == 'x'", Ok(()))]
    #[case("has(self.status.other)", Err("false"))]
    #[case("!has(self.status.other)", Ok(()))]
    #[case("quantity(self.spec.cpu).isGreaterThan(quantity('500m'))", Ok(()))]
    #[case("self.status.replicas == 4", Err("false"))]
    #[case("self.status.replicas", Err("Int, not a boolean"))]
    #[case("self.status.nothing == 1", Err("No such key: nothing"))]
    fn holds(#[case] text: &str, #[case] expected: Result<(), &str>) {
        let object = json!({
            "metadata": {"labels": {"a.b/c": "x"}},
            "spec": {"cpu": "1"},
            "status": {"replicas": 3, "conditions": [{"type": "Ready", "status": "True"}]},
        });
        let before = json!({"status": {"replicas": 2}});
        let held = Expression::compile(text).unwrap().holds(&object, Some(&before));
        similar_asserts::assert_eq!(held, expected.map_err(str::to_owned));
    }

    #[test]
    fn nonsense_is_found_before_the_run() {
        let error = Expression::compile("self.status.replicas ==").unwrap_err().to_string();
        assert!(error.starts_with("\"self.status.replicas ==\" is not a CEL expression"), "{error}");
    }
}
