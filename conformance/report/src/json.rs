//! `report.json`: strict to read, byte-stable to write.

use schemars::Schema;
use serde::Deserialize;

use crate::error::ReportError;
use crate::model::{Report, SCHEMA_VERSION};

impl Report {
    /// The report as JSON: keys and lists in a fixed order, two spaces, one newline at the end.
    pub fn to_json(&self) -> Result<String, ReportError> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Reads [`Report::to_json`]. Unknown keys, doubled keys and other versions are errors.
    pub fn from_json(text: &str) -> Result<Self, ReportError> {
        // The version first: a later format would otherwise only be reported by its first unknown key.
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Version {
            schema_version: String,
        }
        let Version { schema_version } = serde_json::from_str(text)?;
        if schema_version == SCHEMA_VERSION {
            Ok(serde_json::from_str(text)?)
        } else {
            Err(ReportError::Version { found: schema_version, wanted: SCHEMA_VERSION })
        }
    }
}

/// JSON Schema of the report.
#[must_use]
pub fn schema() -> Schema {
    schemars::schema_for!(Report)
}

/// [`schema`] as it is published in `scenarios/schema/report.json`.
pub fn schema_json() -> Result<String, ReportError> {
    Ok(serde_json::to_string_pretty(&schema())? + "\n")
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::path::Path;

    use super::*;
    use crate::samples;

    #[test]
    fn what_was_written_is_read_and_written_again_to_the_same_bytes() {
        let report = samples::full();
        let text = report.to_json().unwrap();
        assert!(text.ends_with("}\n"));
        let read = Report::from_json(&text).unwrap();
        similar_asserts::assert_eq!(read, report);
        similar_asserts::assert_eq!(read.to_json().unwrap(), text);
    }

    #[test]
    fn an_unknown_key_is_named_with_its_place() {
        let text = samples::full().to_json().unwrap();
        let doctored = text.replacen("\"planes\"", "\"plains\"", 1);
        let error = Report::from_json(&doctored).unwrap_err();
        let line = doctored.lines().position(|l| l.contains("plains")).unwrap() + 1;
        assert!(error.to_string().contains(&format!("line {line}, column ")), "{error}");
        let source = error.source().unwrap().to_string();
        assert!(source.contains("unknown field `plains`, expected one of"), "{source}");
    }

    #[test]
    fn another_version_is_said_to_be_one() {
        let text =
            samples::full().to_json().unwrap().replacen("v1alpha1", "v2", 1).replace("planes", "plains");
        assert_eq!(
            Report::from_json(&text).unwrap_err().to_string(),
            "report has format \"bufconf.dev/v2\", this suite reads \"bufconf.dev/v1alpha1\""
        );
    }

    #[test]
    fn published_schema_is_fresh() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/schema/report.json");
        let wanted = schema_json().unwrap();
        if std::env::var_os("BUFCONF_GENERATE").is_some_and(|v| v == "1") {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, &wanted).unwrap();
        }
        let committed = std::fs::read_to_string(&file).unwrap();
        similar_asserts::assert_eq!(committed, wanted, "stale: run the tests with BUFCONF_GENERATE=1");
    }
}
