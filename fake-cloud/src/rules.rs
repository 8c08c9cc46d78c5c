//! The timing and the faults of a node class, parsed, and whom they strike.
//!
//! Whether a fault with a `percent` strikes depends on its seed and on the claim's name alone. A fault with a `count`
//! strikes until its count is reached; the strikes are recorded in the class's status, so that a restart of the cloud
//! neither repeats nor forgets them.

use std::{collections::BTreeMap, time::Duration};

use buffer_api::{
    FakeNodeClassSpec,
    duration::{self, ParseDurationError},
    fake_node_class::{Delay, Fault, FaultKind, StruckFault},
};

use crate::chance;

/// How long an offering that could not be bought stays unavailable, as in Karpenter's providers.
const UNAVAILABLE_FOR: Duration = Duration::from_mins(3);

/// Labels by key.
pub type Labels = BTreeMap<String, String>;

/// Timing and faults of a node class.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    launch: Span,
    register: Span,
    ready: Span,
    terminate: Span,
    faults: Vec<Rule>,
}

/// Why the rules of a class make no sense.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{field}")]
pub struct RulesError {
    field: String,
    source: ParseDurationError,
}

/// From `min` to `max`.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    min: Duration,
    max: Duration,
}

#[derive(Clone, Debug)]
struct Rule {
    fault: Fault,
    after: Option<Duration>,
    /// Identity of the fault in the record of strikes: two faults with equal text are one.
    id: String,
}

/// The steps that take their time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// From the claim to the running instance.
    Launch,
    /// From the running instance to the Node object.
    Register,
    /// From the Node object to Ready.
    Ready,
    /// From the order to terminate to the instance being away.
    Terminate,
}

/// What will go wrong with an instance.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Fate {
    /// Its Node never comes.
    pub never_register: bool,
    /// Its Node is never Ready.
    pub never_ready: bool,
    /// How much longer each step takes.
    pub slower: Duration,
    /// How long after the launch the kubelet falls silent.
    pub crash: Option<Duration>,
    /// How long after the launch the instance is gone.
    pub disappear: Option<Duration>,
}

impl Rules {
    /// Parses the time spans of a class.
    pub fn parse(spec: &FakeNodeClassSpec) -> Result<Self, RulesError> {
        let span = |name: &str, delay: &Option<Delay>| {
            let Some(delay) = delay else { return Ok(Span::default()) };
            let error = |source| RulesError { field: format!("spec.timing.{name}"), source };
            let min = duration::parse(&delay.min).map_err(error)?;
            let max = delay.max.as_deref().map_or(Ok(min), duration::parse).map_err(error)?;
            Ok(Span { min, max })
        };
        let faults = spec.faults.iter().enumerate().map(|(index, fault)| {
            let after = fault.after.as_deref().map(duration::parse).transpose();
            let after = after
                .map_err(|source| RulesError { field: format!("spec.faults[{index}].after"), source })?;
            let id = format!("{:016x}", chance::hash(0, &[&format!("{fault:?}")]));
            Ok(Rule { fault: fault.clone(), after, id })
        });
        Ok(Self {
            launch: span("launch", &spec.timing.launch)?,
            register: span("register", &spec.timing.register)?,
            ready: span("ready", &spec.timing.ready)?,
            terminate: span("terminate", &spec.timing.terminate)?,
            faults: faults.collect::<Result<_, _>>()?,
        })
    }

    /// How long a step takes for a claim.
    #[must_use]
    pub fn delay(&self, phase: Phase, claim: &str, fate: Fate) -> Duration {
        let (span, name) = match phase {
            Phase::Launch => (self.launch, "launch"),
            Phase::Register => (self.register, "register"),
            Phase::Ready => (self.ready, "ready"),
            Phase::Terminate => (self.terminate, "terminate"),
        };
        chance::between(span.min, span.max, &[name, claim]) + fate.slower
    }

    /// Whether the purchase of an offer (its labels joined with the claim's) fails for want of capacity, and for how long
    /// the offer is unavailable then. A strike of a fault with a count is recorded.
    pub fn lacks_capacity(
        &self,
        struck: &mut Vec<StruckFault>,
        claim: &str,
        labels: &Labels,
        offer: &str,
    ) -> Option<Duration> {
        self.strike(struck, FaultKind::InsufficientCapacity, labels, &[claim, offer])
            .map(|rule| rule.after.unwrap_or(UNAVAILABLE_FOR))
    }

    /// Whether an offering is still to be called unavailable: some fault that makes it so is still there.
    #[must_use]
    pub fn may_lack_capacity(&self, labels: &Labels) -> bool {
        self.of(FaultKind::InsufficientCapacity).any(|rule| {
            // what the claim or the type adds to the labels is not known any more
            rule.fault.selector.iter().all(|(k, v)| labels.get(k).is_none_or(|have| have == v))
        })
    }

    /// Whether the purchase fails with an error at this attempt. A strike of a fault with a count is recorded.
    pub fn fails(&self, struck: &mut Vec<StruckFault>, claim: &str, labels: &Labels, attempt: u32) -> bool {
        self.strike(struck, FaultKind::LaunchError, labels, &[claim, &attempt.to_string()]).is_some()
    }

    fn strike(
        &self,
        struck: &mut Vec<StruckFault>,
        kind: FaultKind,
        labels: &Labels,
        parts: &[&str],
    ) -> Option<&Rule> {
        let rule = self.of(kind).find(|rule| rule.matches(labels, parts) && rule.has_more(struck))?;
        if rule.fault.count.is_some() {
            rule.record(struck, None);
        }
        Some(rule)
    }

    /// Records which faults with a count strike an instance. A newborn instance can be struck by any fault, an older one
    /// only by `crash` and `disappear`. Answers whether the record changed.
    pub fn strike_instance(
        &self,
        struck: &mut Vec<StruckFault>,
        claim: &str,
        labels: &Labels,
        newborn: bool,
    ) -> bool {
        let mut changed = false;
        for rule in &self.faults {
            let possible = match rule.fault.kind {
                FaultKind::InsufficientCapacity | FaultKind::LaunchError => false,
                FaultKind::NeverRegister | FaultKind::NeverReady | FaultKind::Slow => newborn,
                FaultKind::Crash | FaultKind::Disappear => true,
            };
            let counted = rule.fault.count.is_some() && !rule.struck(struck, claim);
            if possible && counted && rule.has_more(struck) && rule.matches(labels, &[claim]) {
                rule.record(struck, Some(claim));
                changed = true;
            }
        }
        changed
    }

    /// What goes wrong with an instance, from the faults that are there now and the record of strikes.
    #[must_use]
    pub fn fate(&self, struck: &[StruckFault], claim: &str, labels: &Labels) -> Fate {
        let mut fate = Fate::default();
        for rule in &self.faults {
            let strikes = match rule.fault.count {
                Some(_) => rule.struck(struck, claim),
                None => rule.matches(labels, &[claim]),
            };
            if !strikes {
                continue;
            }
            let after = rule.after.unwrap_or_default();
            let sooner = |other: Option<Duration>| Some(other.map_or(after, |other| other.min(after)));
            match rule.fault.kind {
                FaultKind::InsufficientCapacity | FaultKind::LaunchError => {}
                FaultKind::NeverRegister => fate.never_register = true,
                FaultKind::NeverReady => fate.never_ready = true,
                FaultKind::Slow => fate.slower += after,
                FaultKind::Crash => fate.crash = sooner(fate.crash),
                FaultKind::Disappear => fate.disappear = sooner(fate.disappear),
            }
        }
        fate
    }

    /// The record without the faults that the class no longer has, and without claims that are no longer there.
    #[must_use]
    pub fn prune(&self, struck: &[StruckFault], exists: impl Fn(&str) -> bool) -> Vec<StruckFault> {
        let known = struck.iter().filter(|record| self.faults.iter().any(|rule| rule.id == record.fault));
        known
            .cloned()
            .map(|mut record| {
                record.claims.retain(|claim| exists(claim));
                record
            })
            .collect()
    }

    fn of(&self, kind: FaultKind) -> impl Iterator<Item = &Rule> {
        self.faults.iter().filter(move |rule| rule.fault.kind == kind)
    }
}

impl Rule {
    fn matches(&self, labels: &Labels, parts: &[&str]) -> bool {
        self.fault.selector.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.fault.percent.is_none_or(|percent| chance::happens(percent, self.fault.seed, parts))
    }

    fn has_more(&self, struck: &[StruckFault]) -> bool {
        let strikes = struck.iter().find(|record| record.fault == self.id).map_or(0, |record| record.strikes);
        self.fault.count.is_none_or(|count| strikes < count)
    }

    fn struck(&self, struck: &[StruckFault], claim: &str) -> bool {
        struck.iter().any(|record| record.fault == self.id && record.claims.iter().any(|c| c == claim))
    }

    fn record(&self, struck: &mut Vec<StruckFault>, claim: Option<&str>) {
        let index = struck.iter().position(|record| record.fault == self.id).unwrap_or_else(|| {
            struck.push(StruckFault { fault: self.id.clone(), ..StruckFault::default() });
            struck.len() - 1
        });
        let record = &mut struck[index];
        record.strikes = record.strikes.saturating_add(1);
        record.claims.extend(claim.map(str::to_owned));
    }
}

#[cfg(test)]
mod tests {
    use buffer_api::{fake_node_class::Timing, labels};
    use rstest::rstest;

    use super::*;

    fn rules(faults: Vec<Fault>) -> Rules {
        Rules::parse(&FakeNodeClassSpec { faults, ..Default::default() }).expect("rules")
    }

    fn in_zone(zone: &str) -> Labels {
        [(labels::ZONE.to_owned(), zone.to_owned())].into()
    }

    fn fault(kind: FaultKind) -> Fault {
        Fault { kind, ..Fault::default() }
    }

    #[test]
    fn without_a_count_always() {
        let rules = rules(vec![fault(FaultKind::InsufficientCapacity)]);
        let mut struck = Vec::new();
        for _ in 0..10 {
            let lack = rules.lacks_capacity(&mut struck, "web-1", &in_zone("a"), "c/a");
            assert_eq!(lack, Some(UNAVAILABLE_FOR));
        }
        assert!(struck.is_empty(), "only counts are recorded");
    }

    #[test]
    fn a_count_is_used_up_and_survives_in_the_record() {
        let class = || rules(vec![Fault { count: Some(2), ..fault(FaultKind::LaunchError) }]);
        let mut struck = Vec::new();
        let first: Vec<bool> =
            (0..2).map(|attempt| class().fails(&mut struck, "web-1", &in_zone("a"), attempt)).collect();
        assert_eq!(first, [true, true]);
        assert_eq!(struck[0].strikes, 2);
        assert!(!class().fails(&mut struck, "web-2", &in_zone("a"), 0));
    }

    #[test]
    fn the_selector_and_the_time_of_want() {
        let want = Fault {
            selector: in_zone("a"),
            after: Some("2s".to_owned()),
            ..fault(FaultKind::InsufficientCapacity)
        };
        let rules = rules(vec![want]);
        let mut struck = Vec::new();
        let lack = rules.lacks_capacity(&mut struck, "web-1", &in_zone("a"), "c/a");
        assert_eq!(lack, Some(Duration::from_secs(2)));
        assert_eq!(rules.lacks_capacity(&mut struck, "web-1", &in_zone("b"), "c/b"), None);
        assert!(rules.may_lack_capacity(&in_zone("a")));
        assert!(!rules.may_lack_capacity(&in_zone("b")));
    }

    #[test]
    fn percent_and_seed_decide_repeatably() {
        let struck_by = |seed| -> Vec<bool> {
            let rules = rules(vec![Fault { percent: Some(50), seed, ..fault(FaultKind::NeverReady) }]);
            (0..64).map(|i| rules.fate(&[], &format!("web-{i}"), &Labels::new()).never_ready).collect()
        };
        assert_eq!(struck_by(1), struck_by(1));
        assert_ne!(struck_by(1), struck_by(2));
        let hits = struck_by(1).iter().filter(|&&hit| hit).count();
        assert!((16..48).contains(&hits), "{hits} of 64");
    }

    #[rstest]
    #[case(FaultKind::NeverRegister, true, true)]
    #[case(FaultKind::NeverRegister, false, false)]
    #[case(FaultKind::NeverReady, false, false)]
    #[case(FaultKind::Slow, false, false)]
    #[case(FaultKind::Crash, false, true)]
    #[case(FaultKind::Disappear, false, true)]
    #[case(FaultKind::LaunchError, true, false)]
    fn counted_faults_stay_with_an_instance(
        #[case] kind: FaultKind,
        #[case] newborn: bool,
        #[case] strikes: bool,
    ) {
        let rules = rules(vec![Fault { count: Some(1), after: Some("1s".to_owned()), ..fault(kind) }]);
        let mut struck = Vec::new();
        assert_eq!(rules.strike_instance(&mut struck, "web-1", &Labels::new(), newborn), strikes);
        assert_eq!(rules.fate(&struck, "web-1", &Labels::new()) != Fate::default(), strikes);
        assert_eq!(rules.fate(&struck, "web-2", &Labels::new()), Fate::default());
        assert!(!rules.strike_instance(&mut struck, "web-1", &Labels::new(), newborn), "not twice");
        let second = rules.strike_instance(&mut struck, "web-2", &Labels::new(), newborn);
        assert!(!second, "the count is used up");
    }

    #[test]
    fn removing_a_fault_forgets_its_strikes() {
        let rules = rules(vec![Fault { count: Some(2), ..fault(FaultKind::Crash) }]);
        let mut struck = Vec::new();
        rules.strike_instance(&mut struck, "web-1", &Labels::new(), false);
        rules.strike_instance(&mut struck, "web-2", &Labels::new(), false);
        let pruned = rules.prune(&struck, |claim| claim == "web-2");
        assert_eq!((pruned[0].strikes, pruned[0].claims.as_slice()), (2, &["web-2".to_owned()][..]));
        assert!(Rules::default().prune(&struck, |_| true).is_empty());
    }

    #[test]
    fn delays() {
        let delay =
            |min: &str, max: Option<&str>| Some(Delay { min: min.to_owned(), max: max.map(str::to_owned) });
        let timing =
            Timing { launch: delay("1s", Some("3s")), ready: delay("500ms", None), ..Timing::default() };
        let slow = Fault { after: Some("10s".to_owned()), ..fault(FaultKind::Slow) };
        let spec = FakeNodeClassSpec { timing, faults: vec![slow], ..Default::default() };
        let rules = Rules::parse(&spec).expect("rules");
        let fate = rules.fate(&[], "web-1", &Labels::new());
        let launch = rules.delay(Phase::Launch, "web-1", Fate::default());
        assert!(launch >= Duration::from_secs(1) && launch <= Duration::from_secs(3));
        assert_eq!(rules.delay(Phase::Ready, "web-1", Fate::default()), Duration::from_millis(500));
        assert_eq!(rules.delay(Phase::Ready, "web-1", fate), Duration::from_millis(10_500));
        assert_eq!(rules.delay(Phase::Terminate, "web-1", Fate::default()), Duration::ZERO);
    }

    #[rstest]
    #[case(Some("soon"), None, "spec.timing.launch")]
    #[case(None, Some("-1s"), "spec.faults[0].after")]
    fn errors_name_the_field(#[case] launch: Option<&str>, #[case] after: Option<&str>, #[case] field: &str) {
        let spec = FakeNodeClassSpec {
            timing: Timing {
                launch: launch.map(|min| Delay { min: min.to_owned(), max: None }),
                ..Timing::default()
            },
            faults: vec![Fault { after: after.map(str::to_owned), ..fault(FaultKind::Slow) }],
            ..Default::default()
        };
        assert_eq!(Rules::parse(&spec).expect_err("nonsense").to_string(), field);
    }
}
