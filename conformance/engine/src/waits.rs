//! The named waits: how long is waited for what, and what a written source allows.
//!
//! *Patience* is how long the suite watches before it calls an assertion violated; it is finite, depends on the kind
//! of cluster and is scaled by the time factor. A *limit* is what a conformant implementation may take, and exists
//! only where somebody wrote it down; it is never scaled.

use std::{collections::BTreeMap, fmt, time::Duration};

use conformance_report::model::WaitSetting;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{implementation::Dialect, words::nearest};

/// On what a run happens.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ClusterKind {
    /// Control plane as child processes, hollow nodes.
    Embedded,
    /// A kind cluster, nodes are containers.
    Kind,
    /// Somebody's cluster.
    Existing,
}

/// Names of the waits.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd)]
#[serde(rename_all = "camelCase")]
pub enum Wait {
    /// Something that follows at once from what is there is seen.
    Observe,
    /// A change of a template, a workload or a buffer shows in the buffer's status.
    Resolve,
    /// Capacity that was asked for is there.
    Provision,
    /// Pods that have room are bound.
    Bind,
    /// Capacity that was consumed is there again.
    Refill,
    /// Capacity that nobody asks for any more is gone.
    Release,
    /// How long a state is watched that must not change.
    Stable,
    /// A node that exists is Ready.
    NodeReady,
    /// The objects of a scenario are gone.
    Cleanup,
    /// How long it is watched that something does not happen.
    Quick,
}

/// What a written source allows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limit {
    /// The longest conformant time.
    pub duration: Duration,
    /// Where it is written.
    pub source: &'static str,
}

struct WaitRow {
    wait: Wait,
    name: &'static str,
    /// Seconds on an embedded, a kind and an existing cluster.
    patience: [u64; 3],
    /// It is not patience but the length of a watch: the time factor does not apply.
    fixed: bool,
    limits: &'static [(Dialect, Limit)],
}

const fn row(wait: Wait, name: &'static str, patience: [u64; 3]) -> WaitRow {
    WaitRow { wait, name, patience, fixed: false, limits: &[] }
}

/// The API text bounds no time at all, so every limit belongs to a dialect.
const TABLE: [WaitRow; 10] = [
    row(Wait::Observe, "observe", [15, 30, 60]),
    WaitRow {
        limits: &[(
            Dialect::Karpenter,
            Limit {
                duration: Duration::from_secs(30),
                source: "Karpenter documentation, Capacity Buffers: changes to the workload are seen within 30 s",
            },
        )],
        ..row(Wait::Resolve, "resolve", [45, 60, 90])
    },
    row(Wait::Provision, "provision", [60, 180, 600]),
    row(Wait::Bind, "bind", [30, 60, 120]),
    row(Wait::Refill, "refill", [60, 180, 600]),
    row(Wait::Release, "release", [120, 180, 900]),
    WaitRow { fixed: true, ..row(Wait::Stable, "stable", [60, 60, 60]) },
    row(Wait::NodeReady, "nodeReady", [30, 120, 600]),
    row(Wait::Cleanup, "cleanup", [60, 120, 600]),
    WaitRow { fixed: true, ..row(Wait::Quick, "quick", [5, 5, 5]) },
];

impl Wait {
    /// All waits, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.wait)
    }

    /// Name as scenarios and the command line write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Whether it is the length of a watch and not patience.
    #[must_use]
    pub fn is_length(self) -> bool {
        self.row().fixed
    }

    /// The wait of that name.
    pub fn parse(name: &str) -> Result<Self, WaitError> {
        TABLE.iter().find(|row| row.name == name).map(|row| row.wait).ok_or_else(|| WaitError::Unknown {
            name: name.to_owned(),
            nearest: nearest(name, TABLE.iter().map(|row| row.name)),
        })
    }

    const fn row(self) -> &'static WaitRow {
        // the table is in the order of the variants; a test holds the two together
        &TABLE[self as usize]
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The waits in force for one run.
#[derive(Clone, Debug)]
pub struct Waits {
    cluster: ClusterKind,
    dialect: Option<Dialect>,
    time_factor: f64,
    overrides: BTreeMap<Wait, Duration>,
}

/// What is wrong with a wait given by the user.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WaitError {
    /// No such wait.
    #[error("unknown wait `{name}`{}", crate::words::did_you_mean(.nearest.as_deref()))]
    Unknown {
        /// What was written.
        name: String,
        /// What may have been meant.
        nearest: Option<&'static str>,
    },
    /// Not of the form `name=duration`.
    #[error("`{0}` is not of the form name=duration, such as provision=90s")]
    Form(String),
    /// Not a duration.
    #[error("wait `{name}`")]
    Duration {
        /// The wait.
        name: &'static str,
        /// What is wrong with its value.
        source: DurationError,
    },
    /// Not a factor.
    #[error("the time factor must be a number from 0.01 to 1000, not {0}")]
    Factor(f64),
}

/// A text that is not a duration.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is not a duration such as 500ms, 30s, 5m or 1h")]
pub struct DurationError(pub String);

impl Waits {
    /// The table for a kind of cluster and the implementation's dialect.
    #[must_use]
    pub const fn new(cluster: ClusterKind, dialect: Option<Dialect>) -> Self {
        Self { cluster, dialect, time_factor: 1.0, overrides: BTreeMap::new() }
    }

    /// Scales all patience, for slow machines.
    pub fn with_time_factor(mut self, factor: f64) -> Result<Self, WaitError> {
        if !(0.01..=1000.0).contains(&factor) {
            return Err(WaitError::Factor(factor));
        }
        self.time_factor = factor;
        Ok(self)
    }

    /// Sets one wait by `name=duration`, as the command line has it. It wins over the time factor.
    pub fn with_override(mut self, setting: &str) -> Result<Self, WaitError> {
        let (name, duration) = setting.split_once('=').ok_or_else(|| WaitError::Form(setting.to_owned()))?;
        let wait = Wait::parse(name.trim())?;
        let duration = parse_duration(duration.trim())
            .map_err(|source| WaitError::Duration { name: wait.name(), source })?;
        self.overrides.insert(wait, duration);
        Ok(self)
    }

    /// On what the run happens.
    #[must_use]
    pub const fn cluster(&self) -> ClusterKind {
        self.cluster
    }

    /// How long the suite watches; for a length ([`Wait::is_length`]) exactly so long.
    #[must_use]
    pub fn patience(&self, wait: Wait) -> Duration {
        if let Some(duration) = self.overrides.get(&wait) {
            return *duration;
        }
        let row = wait.row();
        let base = Duration::from_secs(row.patience[self.cluster as usize]);
        if row.fixed { base } else { base.mul_f64(self.time_factor) }
    }

    /// What a conformant implementation of this dialect may take, if anything says so.
    #[must_use]
    pub fn limit(&self, wait: Wait) -> Option<Limit> {
        let dialect = self.dialect?;
        wait.row().limits.iter().find(|(of, _)| *of == dialect).map(|(_, limit)| *limit)
    }

    /// The table as the report shows it.
    #[must_use]
    pub fn settings(&self) -> Vec<WaitSetting> {
        Wait::all()
            .map(|wait| {
                let limit = self.limit(wait);
                WaitSetting {
                    name: wait.name().to_owned(),
                    limit_ms: limit.map(|limit| millis(limit.duration)),
                    patience_ms: millis(self.patience(wait)),
                    source: limit.map(|limit| limit.source.to_owned()),
                    overridden: self.overrides.contains_key(&wait),
                }
            })
            .collect()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Reads `500ms`, `30s`, `5m` or `1h`; whole numbers, more than zero, at most a day.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let error = || DurationError(text.to_owned());
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(error)?;
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(error()),
    };
    let millis = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).ok_or_else(error)?;
    match millis {
        1..=86_400_000 => Ok(Duration::from_millis(millis)),
        _ => Err(error()),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_variants() {
        for wait in Wait::all() {
            assert_eq!(wait.row().wait, wait);
            assert_eq!(Wait::parse(wait.name()), Ok(wait));
            let written: Wait = serde_json::from_value(wait.name().into()).unwrap();
            assert_eq!(written, wait);
        }
    }

    #[rstest]
    #[case("500ms", 500)]
    #[case("30s", 30_000)]
    #[case("5m", 300_000)]
    #[case("24h", 86_400_000)]
    fn durations(#[case] text: &str, #[case] millis: u64) {
        assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)));
    }

    #[rstest]
    #[case("")]
    #[case("s")]
    #[case("30")]
    #[case("0s")]
    #[case("1.5s")]
    #[case("-1s")]
    #[case("25h")]
    #[case("99999999999999999999s")]
    #[case("18446744073709551615h")]
    fn what_is_no_duration(#[case] text: &str) {
        assert_eq!(parse_duration(text), Err(DurationError(text.to_owned())));
    }

    #[test]
    fn patience_depends_on_cluster_factor_and_override() {
        let secs = Duration::from_secs;
        let waits = Waits::new(ClusterKind::Kind, None);
        assert_eq!(waits.patience(Wait::Provision), secs(180));
        let waits = waits.with_time_factor(2.0).unwrap();
        assert_eq!(waits.patience(Wait::Provision), secs(360));
        assert_eq!(waits.patience(Wait::Stable), secs(60), "a length is not patience");
        let waits = waits.with_override("provision=90s").unwrap().with_override("stable=10s").unwrap();
        assert_eq!(waits.patience(Wait::Provision), secs(90));
        assert_eq!(waits.patience(Wait::Stable), secs(10));
        let provision = waits.settings().into_iter().find(|setting| setting.name == "provision").unwrap();
        assert!(provision.overridden);
        assert_eq!(provision.patience_ms, 90_000);
    }

    #[test]
    fn only_a_dialect_has_limits_and_no_factor_moves_them() {
        assert_eq!(Waits::new(ClusterKind::Embedded, None).limit(Wait::Resolve), None);
        let karpenter =
            Waits::new(ClusterKind::Embedded, Some(Dialect::Karpenter)).with_time_factor(3.0).unwrap();
        assert_eq!(karpenter.limit(Wait::Resolve).unwrap().duration, Duration::from_secs(30));
        assert_eq!(karpenter.limit(Wait::Provision), None);
        assert_eq!(
            Waits::new(ClusterKind::Embedded, Some(Dialect::ClusterAutoscaler)).limit(Wait::Resolve),
            None
        );
    }

    #[rstest]
    #[case("provison=90s", "unknown wait `provison`, did you mean `provision`?")]
    #[case("provision", "`provision` is not of the form name=duration, such as provision=90s")]
    #[case("provision=soon", "wait `provision`")]
    fn bad_overrides(#[case] setting: &str, #[case] message: &str) {
        let error = Waits::new(ClusterKind::Embedded, None).with_override(setting).unwrap_err();
        assert_eq!(error.to_string(), message);
    }

    #[rstest]
    #[case(0.0)]
    #[case(-1.0)]
    #[case(f64::NAN)]
    #[case(f64::INFINITY)]
    fn bad_factors(#[case] factor: f64) {
        assert!(Waits::new(ClusterKind::Embedded, None).with_time_factor(factor).is_err());
    }
}
