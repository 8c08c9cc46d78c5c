//! Facts of the schemas that the API text asks for, and the freshness of the committed files.

use std::{env, fs, path::PathBuf};

use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::capacity_buffer::ACTIVE_CAPACITY;

const BUFFER: &str = "capacitybuffers.autoscaling.x-k8s.io";
const NODE_POOL: &str = "nodepools.karpenter.sh";
const NODE_CLAIM: &str = "nodeclaims.karpenter.sh";
const NODE_CLASS: &str = "fakenodeclasses.bufconf.dev";

fn crd(name: &str) -> Value {
    let found = all().into_iter().find(|crd| crd.metadata.name.as_deref() == Some(name));
    serde_json::to_value(found.unwrap()).unwrap()
}

/// What stands at a path of properties in a version's schema; `*` means the values of a map or the items of a list.
fn schema_at(crd: &Value, version: usize, path: &str) -> Value {
    let mut at = &crd["spec"]["versions"][version]["schema"]["openAPIV3Schema"];
    for step in path.split('.').filter(|step| !step.is_empty()) {
        at = match step {
            "*" if at["type"] == "array" => &at["items"],
            "*" => &at["additionalProperties"],
            name => &at["properties"][name],
        };
        assert!(at.is_object(), "no schema at step {step} of {path}");
    }
    at.clone()
}

/// Calls `visit` with each schema of the CRD.
fn each_schema(crd: &Value, visit: &mut impl FnMut(&Value)) {
    fn walk(schema: &Value, visit: &mut impl FnMut(&Value)) {
        visit(schema);
        for property in
            schema["properties"].as_object().into_iter().flat_map(|properties| properties.values())
        {
            walk(property, visit);
        }
        for inner in ["items", "additionalProperties"] {
            if schema[inner].is_object() {
                walk(&schema[inner], visit);
            }
        }
    }
    for version in crd["spec"]["versions"].as_array().unwrap() {
        walk(&version["schema"]["openAPIV3Schema"], visit);
    }
}

#[test]
fn buffer_names_and_scope() {
    let crd = crd(BUFFER);
    assert_eq!(
        crd["spec"]["names"],
        json!({
            "kind": "CapacityBuffer", "listKind": "CapacityBufferList", "plural": "capacitybuffers",
            "singular": "capacitybuffer", "shortNames": ["cb"], "categories": ["autoscaling"],
        })
    );
    assert_eq!(crd["spec"]["group"], "autoscaling.x-k8s.io");
    assert_eq!(crd["spec"]["scope"], "Namespaced");
}

#[test]
fn buffer_versions_differ_only_in_name_storage_and_deprecation() {
    let crd = crd(BUFFER);
    let [stored, old] = crd["spec"]["versions"].as_array().unwrap().as_slice() else {
        panic!("two versions")
    };
    assert_eq!((&stored["name"], &stored["storage"]), (&json!("v1beta1"), &json!(true)));
    assert_eq!((&old["name"], &old["storage"]), (&json!("v1alpha1"), &json!(false)));
    assert_eq!((&stored["served"], &old["served"]), (&json!(true), &json!(true)));
    assert_eq!((stored.get("deprecated"), old.get("deprecated")), (None, Some(&json!(true))));
    for same in ["schema", "subresources", "additionalPrinterColumns"] {
        similar_asserts::assert_eq!(old[same], stored[same]);
    }
    assert_eq!(stored["subresources"], json!({"status": {}}), "status, and no scale");
    assert_eq!(crd["spec"].get("conversion"), None);
}

#[test]
fn buffer_columns() {
    let columns: Vec<_> = crd(BUFFER)["spec"]["versions"][0]["additionalPrinterColumns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| {
            [&column["name"], &column["type"], &column["jsonPath"]]
                .map(|text| text.as_str().unwrap().to_owned())
        })
        .collect();
    let expected = [
        ["Strategy", "string", ".spec.provisioningStrategy"],
        ["PodTemplate", "string", ".status.podTemplateRef.name"],
        ["Replicas", "integer", ".status.replicas"],
        ["ConditionsType", "string", ".status.conditions[*].type"],
        ["ConditionsStatus", "string", ".status.conditions[*].status"],
        ["ConditionsReason", "string", ".status.conditions[*].reason"],
        ["Age", "date", ".metadata.creationTimestamp"],
    ];
    assert_eq!(columns, expected.map(|column| column.map(str::to_owned)));
}

#[rstest]
#[case::strategy(BUFFER, "spec.provisioningStrategy", json!({"type": "string", "default": ACTIVE_CAPACITY}))]
#[case::replicas(BUFFER, "spec.replicas", json!({"type": "integer", "format": "int32", "minimum": 0.0}))]
#[case::percentage(BUFFER, "spec.percentage", json!({"type": "integer", "format": "int32", "minimum": 0.0}))]
#[case::template_name(BUFFER, "spec.podTemplateRef.name", json!({"type": "string", "minLength": 1}))]
#[case::kind(BUFFER, "spec.scalableRef.kind", json!({"type": "string", "minLength": 1}))]
#[case::name(BUFFER, "spec.scalableRef.name", json!({"type": "string", "minLength": 1}))]
#[case::group(BUFFER, "spec.scalableRef.apiGroup", json!({"type": "string"}))]
#[case::observed_replicas(BUFFER, "status.replicas", json!({"type": "integer", "format": "int32"}))]
#[case::generation(BUFFER, "status.podTemplateGeneration", json!({"type": "integer", "format": "int64"}))]
#[case::weight(NODE_POOL, "spec.weight", json!({"type": "integer", "format": "int32", "minimum": 1.0, "maximum": 100.0}))]
#[case::consolidate_after(
    NODE_POOL, "spec.disruption.consolidateAfter",
    json!({"type": "string", "default": "0s", "pattern": "^(([0-9]+(s|m|h))+|Never)$"}),
)]
#[case::policy(
    NODE_POOL, "spec.disruption.consolidationPolicy",
    json!({
        "type": "string", "default": "WhenEmptyOrUnderutilized", "enum": ["WhenEmpty", "WhenEmptyOrUnderutilized"],
    }),
)]
#[case::taint_effect(
    NODE_POOL, "spec.template.spec.taints.*.effect",
    json!({"type": "string", "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]}),
)]
#[case::expiry(
    NODE_CLAIM, "spec.expireAfter",
    json!({"type": "string", "default": "720h", "pattern": "^(([0-9]+(s|m|h))+|Never)$"}),
)]
#[case::instances(
    NODE_CLASS, "spec.quota.instances",
    json!({"type": "integer", "format": "int64", "minimum": 0.0, "default": 500}),
)]
fn field(#[case] name: &str, #[case] path: &str, #[case] expected: Value) {
    let mut schema = schema_at(&crd(name), 0, path);
    let described = schema.as_object_mut().unwrap().remove("description");
    assert!(described.is_some());
    assert_eq!(schema, expected);
}

#[rstest]
#[case::buffer(BUFFER, "spec", json!(null))]
#[case::buffer_root(BUFFER, "", json!(["spec"]))]
#[case::workload(BUFFER, "spec.scalableRef", json!(["kind", "name"]))]
#[case::template(BUFFER, "spec.podTemplateRef", json!(["name"]))]
#[case::pool(NODE_POOL, "spec.template.spec", json!(["nodeClassRef"]))]
fn required_fields(#[case] name: &str, #[case] path: &str, #[case] expected: Value) {
    assert_eq!(schema_at(&crd(name), 0, path)["required"], expected);
}

#[rstest]
#[case::limits(BUFFER, "spec.limits.*")]
#[case::pool_limits(NODE_POOL, "spec.limits.*")]
#[case::pool_resources(NODE_POOL, "status.resources.*")]
#[case::requests(NODE_CLAIM, "spec.resources.requests.*")]
#[case::capacity(NODE_CLAIM, "status.capacity.*")]
#[case::allocatable(NODE_CLAIM, "status.allocatable.*")]
#[case::type_capacity(NODE_CLASS, "status.instanceTypes.*.capacity.*")]
#[case::type_overhead(NODE_CLASS, "status.instanceTypes.*.overhead.*")]
fn quantities_are_numbers_or_texts_of_the_quantity_grammar(#[case] name: &str, #[case] path: &str) {
    let expected = json!({
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": QUANTITY,
        "x-kubernetes-int-or-string": true,
    });
    assert_eq!(schema_at(&crd(name), 0, path), expected);
}

#[rstest]
fn conditions_are_a_map_by_type_with_the_bounds_of_metav1(
    #[values(BUFFER, NODE_POOL, NODE_CLAIM, NODE_CLASS)] name: &str,
) {
    let list = schema_at(&crd(name), 0, "status.conditions");
    assert_eq!(list["x-kubernetes-list-type"], "map");
    assert_eq!(list["x-kubernetes-list-map-keys"], json!(["type"]));
    let condition = &list["items"];
    assert_eq!(condition["required"], json!(["lastTransitionTime", "message", "reason", "status", "type"]));
    let fields = &condition["properties"];
    assert_eq!(fields["lastTransitionTime"]["format"], "date-time");
    assert_eq!(fields["message"]["maxLength"], 32768);
    assert_eq!(fields["observedGeneration"]["minimum"], 0.0);
    assert_eq!((&fields["reason"]["minLength"], &fields["reason"]["maxLength"]), (&json!(1), &json!(1024)));
    assert_eq!(fields["reason"]["pattern"], CONDITION_REASON);
    assert_eq!(fields["status"]["enum"], json!(["True", "False", "Unknown"]));
    assert_eq!(
        (&fields["type"]["maxLength"], &fields["type"]["pattern"]),
        (&json!(316), &json!(CONDITION_TYPE))
    );
}

#[rstest]
#[case::references_and_size(
    BUFFER, "spec",
    &["!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)",
      "!has(self.podTemplateRef) || !has(self.scalableRef)"],
)]
#[case::claim(NODE_CLAIM, "spec", &["self == oldSelf"])]
#[case::class_reference(
    NODE_POOL, "spec.template.spec.nodeClassRef", &["self.group == oldSelf.group && self.kind == oldSelf.kind"],
)]
#[case::budgets(NODE_POOL, "spec.disruption.budgets", &["self.all(b, has(b.schedule) == has(b.duration))"])]
fn rules(#[case] name: &str, #[case] path: &str, #[case] expected: &[&str]) {
    let schema = schema_at(&crd(name), 0, path);
    let found: Vec<_> = schema["x-kubernetes-validations"].as_array().unwrap().iter().collect();
    assert_eq!(found.iter().map(|rule| &rule["rule"]).collect::<Vec<_>>(), expected);
    assert!(found.iter().all(|rule| rule["message"].as_str().is_some_and(|message| !message.is_empty())));
}

#[test]
fn the_default_disruption_is_the_default_of_its_fields() {
    let schema = schema_at(&crd(NODE_POOL), 0, "spec.disruption");
    let of = |field: &str| schema["properties"][field]["default"].clone();
    let fields = ["budgets", "consolidateAfter", "consolidationPolicy"];
    let by_field: serde_json::Map<_, _> =
        fields.map(|field| (field.to_owned(), of(field))).into_iter().collect();
    assert_eq!(schema["default"], Value::Object(by_field));
    assert_eq!(of("budgets"), json!([{"nodes": "10%"}]));
}

#[rstest]
fn schemas_are_as_kubernetes_writes_them(#[values(BUFFER, NODE_POOL, NODE_CLAIM, NODE_CLASS)] name: &str) {
    let mut seen = 0;
    each_schema(&crd(name), &mut |schema| {
        seen += 1;
        assert_eq!(schema.get("nullable"), None, "an optional field is absent, not null: {schema}");
        assert_eq!(schema.get("title"), None);
        assert!(
            !schema["format"].as_str().unwrap_or_default().starts_with("uint"),
            "unknown to the API server"
        );
        assert!(
            !schema["description"].as_str().unwrap_or_default().contains("[`"),
            "a link of Rust's documentation"
        );
    });
    assert!(seen > 20);
}

#[test]
fn integer_limits_are_read_like_texts() {
    let spec: crate::CapacityBufferSpec =
        serde_json::from_value(json!({"limits": {"cpu": 20, "memory": "40Gi"}})).unwrap();
    let limits = spec.limits.unwrap();
    assert_eq!(crate::Quantity::try_from(&limits["cpu"]), Ok(crate::Quantity::units(20)));
    assert_eq!(crate::Quantity::try_from(&limits["memory"]), Ok(crate::Quantity::units(40 << 30)));
    assert_eq!(spec.provisioning_strategy.as_deref(), Some(ACTIVE_CAPACITY));
}

/// Compares the files in the chart with what the types give; with `BUFCONF_GENERATE=1` it writes them first.
#[test]
fn committed_files_are_fresh() {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "chart", "crds"].iter().collect();
    let generate = env::var_os("BUFCONF_GENERATE").is_some_and(|value| value == "1");
    let mut expected = Vec::new();
    for crd in all() {
        let name = format!("{}.yaml", crd.metadata.name.as_deref().unwrap());
        let path = folder.join(&name);
        let text = format!(
            "# Generated from the types of buffer-api; `make generate` writes it.\n{}",
            serde_yaml::to_string(&crd).unwrap()
        );
        if generate {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&path, &text).unwrap();
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        similar_asserts::assert_eq!(committed, text, "{name} is stale; run `make generate`");
        expected.push(name);
    }
    let mut found: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    assert_eq!(found, expected, "the folder holds exactly the generated files");
}
