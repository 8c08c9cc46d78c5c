//! The CustomResourceDefinitions of this API.
//!
//! The derived schemas are close to what the API text asks for, but not equal to it: [`all`] corrects them so that the
//! API server accepts, rejects and defaults what upstream's does. What is particular to one field stands as an
//! attribute at that field; only what holds for every resource is done here.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use crate::{CapacityBuffer, FakeNodeClass, NodeClaim, NodePool, karpenter::LABEL_KEY};

/// Version of the CapacityBuffer that is served for old clients; its schema is that of the stored version.
pub const DEPRECATED_VERSION: &str = "v1alpha1";

/// What the API server reads as a quantity: the grammar of `resource.Quantity`.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
/// Types of conditions, as `metav1.Condition` bounds them.
const CONDITION_TYPE: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
/// Reasons of conditions, as `metav1.Condition` bounds them.
const CONDITION_REASON: &str = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";

/// All CustomResourceDefinitions, in the order of their names.
#[must_use]
pub fn all() -> Vec<CustomResourceDefinition> {
    let corrected =
        [CapacityBuffer::crd(), FakeNodeClass::crd(), NodeClaim::crd(), NodePool::crd()].map(|mut crd| {
            crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
            for version in &mut crd.spec.versions {
                if let Some(schema) =
                    version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut())
                {
                    correct(schema);
                }
            }
            crd
        });
    let [mut buffer, rest @ ..] = corrected;
    serve_deprecated_version(&mut buffer);
    [buffer].into_iter().chain(rest).collect()
}

/// Serves the one version of the CapacityBuffer under its old name as well; without a conversion, objects of equal schema
/// are converted by rewriting `apiVersion` alone.
fn serve_deprecated_version(crd: &mut CustomResourceDefinition) {
    let old: Vec<_> = crd
        .spec
        .versions
        .iter()
        .cloned()
        .map(|mut version| {
            DEPRECATED_VERSION.clone_into(&mut version.name);
            version.storage = false;
            version.deprecated = Some(true);
            version
        })
        .collect();
    crd.spec.versions.extend(old);
}

/// Brings a derived schema to the form that Kubernetes generates from Go types.
fn correct(schema: &mut JSONSchemaProps) {
    // An absent optional field is left out; an explicit null is dropped by the API server only where it isn't nullable.
    schema.nullable = None;
    schema.title = None;
    if schema.x_kubernetes_int_or_string == Some(true) {
        *schema = quantity();
        return;
    }
    // The API server knows no unsigned formats; the bounds say the same.
    if schema.format.as_deref().is_some_and(|format| format.starts_with("uint")) {
        schema.format = Some("int64".to_owned());
    }
    for (name, property) in schema.properties.iter_mut().flatten() {
        correct(property);
        match name.as_str() {
            "conditions" => conditions(property),
            "taints" | "startupTaints" => taints(property),
            _ => {}
        }
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        correct(values);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        correct(items);
    }
}

fn quantity() -> JSONSchemaProps {
    let of_type = |name: &str| JSONSchemaProps { type_: Some(name.to_owned()), ..JSONSchemaProps::default() };
    JSONSchemaProps {
        any_of: Some(vec![of_type("integer"), of_type("string")]),
        pattern: Some(QUANTITY.to_owned()),
        x_kubernetes_int_or_string: Some(true),
        ..JSONSchemaProps::default()
    }
}

/// Makes a list of conditions a map by type and bounds its fields as `metav1.Condition` does.
fn conditions(list: &mut JSONSchemaProps) {
    list.x_kubernetes_list_type = Some("map".to_owned());
    list.x_kubernetes_list_map_keys = Some(vec!["type".to_owned()]);
    for (name, field) in item_fields(list) {
        match name.as_str() {
            "message" => field.max_length = Some(32_768),
            "observedGeneration" => field.minimum = Some(0.0),
            "reason" => {
                field.min_length = Some(1);
                field.max_length = Some(1024);
                field.pattern = Some(CONDITION_REASON.to_owned());
            }
            "status" => field.enum_ = Some(one_of(["True", "False", "Unknown"])),
            "type" => {
                field.max_length = Some(316);
                field.pattern = Some(CONDITION_TYPE.to_owned());
            }
            _ => {}
        }
    }
}

/// Bounds the fields of taints as the Node API does, so that a bad one is refused before a machine is bought for it.
fn taints(list: &mut JSONSchemaProps) {
    list.x_kubernetes_list_type = Some("atomic".to_owned());
    for (name, field) in item_fields(list) {
        match name.as_str() {
            "effect" => field.enum_ = Some(one_of(["NoSchedule", "PreferNoSchedule", "NoExecute"])),
            "key" => {
                field.min_length = Some(1);
                field.pattern = Some(LABEL_KEY.to_owned());
            }
            _ => {}
        }
    }
}

fn item_fields(list: &mut JSONSchemaProps) -> impl Iterator<Item = (&String, &mut JSONSchemaProps)> {
    let item = match &mut list.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => item.properties.as_mut(),
        _ => None,
    };
    item.into_iter().flatten()
}

fn one_of<const N: usize>(values: [&str; N]) -> Vec<JSON> {
    values.map(|value| JSON(value.into())).to_vec()
}

#[cfg(test)]
mod tests;
