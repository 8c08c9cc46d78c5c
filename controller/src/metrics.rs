//! What the controller counts. Labels are bounded: kinds of things, never names.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use buffer_api::conditions;
use buffer_core::snapshot::Buffer;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Reason {
    reason: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct WriteLabels {
    kind: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ErrorLabels {
    kind: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ConditionLabels {
    condition: &'static str,
    status: &'static str,
}

const CONDITIONS: [&str; 3] = [
    conditions::buffer::READY_FOR_PROVISIONING,
    conditions::buffer::PROVISIONING,
    conditions::buffer::LIMITED_BY_QUOTAS,
];
const STATUSES: [&str; 3] = ["True", "False", "Unknown"];

/// All metrics. Clones share their values.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
    plans: Family<Reason, Counter>,
    planning: Histogram,
    writes: Family<WriteLabels, Counter>,
    errors: Family<ErrorLabels, Counter>,
    buffers: Family<ConditionLabels, Gauge>,
    leader: Gauge,
}

impl Metrics {
    /// Registers all metrics, each with the prefix `buffer_controller_`.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("buffer_controller");
        let plans = Family::default();
        registry.register("plans", "Plans made, by what woke the planner", plans.clone());
        let planning = Histogram::new(exponential_buckets(0.000_1, 4.0, 9));
        registry.register_with_unit("planning", "Time that one plan took", Unit::Seconds, planning.clone());
        let writes = Family::default();
        registry.register("writes", "Writes, by kind and result", writes.clone());
        let errors = Family::default();
        registry.register("errors", "Errors, by kind", errors.clone());
        let buffers = Family::default();
        registry.register("buffers", "Buffers, by condition and its status", buffers.clone());
        let leader = Gauge::default();
        registry.register("is_leader", "1 while this process may write, else 0", leader.clone());
        Self { registry: Arc::new(registry), plans, planning, writes, errors, buffers, leader }
    }

    /// Counts a plan.
    pub fn plan(&self, reason: &'static str, took: Duration) {
        self.plans.get_or_create(&Reason { reason }).inc();
        self.planning.observe(took.as_secs_f64());
    }

    /// Counts a write.
    pub fn write(&self, kind: &'static str, result: &'static str) {
        self.writes.get_or_create(&WriteLabels { kind, result }).inc();
    }

    /// Counts an error.
    pub fn error(&self, kind: &'static str) {
        self.errors.get_or_create(&ErrorLabels { kind }).inc();
    }

    /// Sets the number of buffers in each state.
    pub fn buffers(&self, buffers: &[Buffer]) {
        let mut counts: BTreeMap<(&str, &str), i64> =
            CONDITIONS.iter().flat_map(|&c| STATUSES.iter().map(move |&s| ((c, s), 0))).collect();
        for condition in buffers.iter().flat_map(|buffer| &buffer.status.conditions) {
            if let Some(count) = counts.get_mut(&(condition.type_.as_str(), condition.status.as_str())) {
                *count += 1;
            }
        }
        for condition in CONDITIONS {
            for status in STATUSES {
                let count = counts.get(&(condition, status)).copied().unwrap_or_default();
                self.buffers.get_or_create(&ConditionLabels { condition, status }).set(count);
            }
        }
    }

    /// Whether this process may write.
    pub fn leader(&self, leads: bool) {
        self.leader.set(leads.into());
    }

    /// All values in the OpenMetrics text format.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use buffer_api::CapacityBufferStatus;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

    use super::*;

    #[test]
    fn buffers_are_counted_by_condition() {
        let condition = |type_: &str, status: &str| Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
            message: String::new(),
            observed_generation: None,
            reason: "R".to_owned(),
        };
        let buffer = |conditions| Buffer {
            status: CapacityBufferStatus { conditions, ..CapacityBufferStatus::default() },
            ..Buffer::default()
        };
        let metrics = Metrics::new();
        let buffers =
            [buffer(vec![condition("Provisioning", "True"), condition("Mine", "True")]), buffer(vec![])];
        metrics.buffers(&buffers);
        metrics.plan("watch", Duration::from_millis(2));
        metrics.leader(true);
        let text = metrics.text().unwrap();
        let has = |line: &str| assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        has("buffer_controller_buffers{condition=\"Provisioning\",status=\"True\"} 1");
        has("buffer_controller_buffers{condition=\"Provisioning\",status=\"False\"} 0");
        has("buffer_controller_plans_total{reason=\"watch\"} 1");
        has("buffer_controller_planning_seconds_count 1");
        has("buffer_controller_is_leader 1");
        metrics.leader(false);
        assert!(metrics.text().unwrap().contains("\nbuffer_controller_is_leader 0\n"));
        assert!(!text.contains("Mine"));
    }
}
