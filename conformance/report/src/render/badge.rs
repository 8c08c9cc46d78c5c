//! The badge: an endpoint of shields.io.

use serde::Serialize;

use super::words::{self, Tone};
use crate::error::ReportError;
use crate::model::{ProfileVerdict, Report, Scope};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Badge {
    schema_version: u8,
    label: &'static str,
    message: String,
    color: &'static str,
}

impl Report {
    /// The report as JSON for a shields.io endpoint badge. Only a run of the whole catalogue can be green.
    pub fn to_badge(&self) -> Result<String, ReportError> {
        let look = words::headline(self);
        let conformant = self
            .profiles
            .values()
            .filter(|v| matches!(v, ProfileVerdict::Conformant | ProfileVerdict::ConformantWithExemptions));
        let claimed = self.profiles.values().filter(|v| **v != ProfileVerdict::NotClaimed).count();
        let what = match self.scope {
            Scope::Full => format!("{}/{claimed} profiles", conformant.count()),
            Scope::Selection => "selection only".to_owned(),
        };
        let day = self.started_at.split('T').next().unwrap_or_default();
        let badge = Badge {
            schema_version: 1,
            label: "CapacityBuffer API",
            message: format!("{} · {what} · {} {} · {day}", look.word, self.suite.name, self.suite.version),
            color: match (look.tone, self.scope) {
                (Tone::Good, Scope::Full) => "brightgreen",
                (Tone::Good, Scope::Selection) | (Tone::Dim, _) => "lightgrey",
                (Tone::Warn, _) => "yellow",
                (Tone::Bad, _) => "red",
            },
        };
        Ok(serde_json::to_string_pretty(&badge)? + "\n")
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::model::Outcome;
    use crate::samples::{active, documented, full, scenario};

    #[rstest]
    #[case::violated(full(), "nonconformant · 0/4 profiles · bufconf 0.1.0 · 2026-12-01", "red")]
    #[case::conformant(
        active(vec![scenario("CB-ACT-001", Outcome::Passed)]),
        "conformant · 1/1 profiles · bufconf 0.1.0 · 2026-12-01",
        "brightgreen"
    )]
    #[case::exemptions(
        active(vec![scenario("CB-ACT-001", Outcome::Passed), scenario("CB-ACT-002", Outcome::Exempted)]),
        "conformant with exemptions · 1/1 profiles · bufconf 0.1.0 · 2026-12-01",
        "yellow"
    )]
    #[case::a_selection_is_never_green(
        documented(),
        "all that was selected conforms · selection only · bufconf 0.1.0 · 2026-12-01",
        "lightgrey"
    )]
    fn badges(#[case] report: Report, #[case] message: &str, #[case] color: &str) {
        let badge: serde_json::Value = serde_json::from_str(&report.to_badge().unwrap()).unwrap();
        let expected = serde_json::json!({
            "schemaVersion": 1, "label": "CapacityBuffer API", "message": message, "color": color
        });
        assert_eq!(badge, expected);
    }
}
