//! What all files of the suite begin with.

use schemars::JsonSchema;
use serde::Deserialize;

/// Versions of the file formats.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
pub enum ApiVersion {
    /// The only one.
    #[serde(rename = "bufconf.dev/v1alpha1")]
    V1Alpha1,
}
