//! What is decided about a scenario before it is run.

use conformance_report::model::{Level, Profile};
use jiff::civil::Date;

use crate::{
    implementation::{Implementation, Pool, Setting},
    scenario::{Isolation, Needs, Scenario},
    waits::ClusterKind,
};

/// Whether a scenario is run, and why not.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Applicability {
    /// It is.
    Run,
    /// The implementation does not claim what it is about.
    NotApplicable(String),
    /// The cluster or the declaration lacks what it needs.
    CouldNotRun(String),
    /// It is a declared known failure.
    Exempted(String),
}

impl Scenario {
    /// Decides it for an implementation on a kind of cluster; an exemption counts up to and including its last day.
    #[must_use]
    pub fn applicability(
        &self,
        implementation: &Implementation,
        cluster: ClusterKind,
        today: Date,
    ) -> Applicability {
        if let Some(why) = self.not_claimed(implementation) {
            return Applicability::NotApplicable(why);
        }
        let exemption = implementation.exemptions.iter().find(|exemption| exemption.scenario == self.id);
        if let Some(exemption) = exemption.filter(|exemption| today <= exemption.expires) {
            let why = format!("{} ({}, until {})", exemption.reason, exemption.link, exemption.expires);
            return Applicability::Exempted(why);
        }
        match self.unmet(implementation, cluster) {
            Some(why) => Applicability::CouldNotRun(why),
            None => Applicability::Run,
        }
    }

    fn not_claimed(&self, implementation: &Implementation) -> Option<String> {
        if !self.profiles.iter().any(|profile| implementation.profiles.contains(profile)) {
            let names: Vec<_> = self.profiles.iter().map(|profile| profile_name(*profile)).collect();
            return Some(format!("the profile is not claimed: {}", names.join(", ")));
        }
        if let Some(feature) = self.features.iter().find(|feature| !implementation.features.contains(feature))
        {
            return Some(format!("the feature is not claimed: {feature}"));
        }
        // a provisional scenario may speak of one dialect only
        let mut judged = self.outline.iter().filter(|step| !step.rows.is_empty()).peekable();
        let foreign = self.level == Level::Provisional
            && judged.peek().is_some()
            && judged.all(|step| step.dialect.is_some() && step.dialect != implementation.dialect);
        foreign.then(|| "it judges another dialect only".to_owned())
    }

    fn unmet(&self, implementation: &Implementation, cluster: ClusterKind) -> Option<String> {
        let needs = &self.needs;
        if needs.isolation == Isolation::Own && cluster == ClusterKind::Existing {
            return Some("it needs a plane of its own, and an existing cluster is one for all".to_owned());
        }
        if needs.settings.gate.is_some() && !implementation.settings.contains(&Setting::Gate) {
            return Some("the implementation can't be started with the setting `gate`".to_owned());
        }
        if let Some(hook) = needs.hooks.iter().find(|hook| !implementation.hooks.contains_key(hook)) {
            return Some(format!("the implementation declares no hook `{hook}`"));
        }
        if let Some(name) = self.variables().find_map(|name| {
            name.strip_prefix("implementation.").filter(|name| !implementation.variables.contains_key(*name))
        }) {
            return Some(format!("the implementation declares no variable `{name}`"));
        }
        if needs.wants_pool() { implementation.pool_for(needs).err() } else { None }
    }
}

impl Implementation {
    /// The first of its pools that has what is needed, or what the last one lacks.
    pub fn pool_for(&self, needs: &Needs) -> Result<&Pool, String> {
        let lacks = |pool: &Pool| {
            if needs.nodes > pool.max_nodes {
                Some(format!("it needs {} nodes, and a pool has at most {}", needs.nodes, pool.max_nodes))
            } else if needs.unique_hostnames && !pool.unique_hostnames {
                Some("it needs nodes with host names of their own".to_owned())
            } else if needs.limits_settable && !pool.limits_settable {
                Some("it needs a pool that takes limits".to_owned())
            } else {
                None
            }
        };
        self.pools.iter().find(|pool| lacks(pool).is_none()).ok_or_else(|| {
            let last = self.pools.last().and_then(lacks);
            last.unwrap_or_else(|| "the implementation declares no pool".to_owned())
        })
    }
}

/// Name of a profile as files write it.
fn profile_name(profile: Profile) -> String {
    // a unit variant always serializes to its name
    serde_json::to_value(profile).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::{
        catalogue::Catalogue,
        scenario::{Origin, Scenario},
    };

    const SCENARIO: &str = "
apiVersion: bufconf.dev/v1alpha1
kind: Scenario
metadata: {name: one}
spec:
  id: CB-ACT-001
  title: A title
  level: LEVEL
  profiles: [BUFFER-ACTIVE, BUFFER-RETAIN]
  features: FEATURES
  sources: [{title: API text, ref: here}]
  needs: NEEDS
  steps:
    - absent: {req: H1, DIALECT resource: {apiVersion: v1, kind: Pod, name: web}}
    STEP
";

    struct Given {
        level: &'static str,
        features: &'static str,
        needs: &'static str,
        dialect: &'static str,
        step: &'static str,
    }

    const PLAIN: Given = Given { level: "core", features: "[]", needs: "{}", dialect: "", step: "" };

    fn scenario(given: &Given) -> Scenario {
        let text = SCENARIO
            .replace("LEVEL", given.level)
            .replace("FEATURES", given.features)
            .replace("NEEDS", given.needs)
            .replace("DIALECT", given.dialect)
            .replace("STEP", given.step);
        let catalogue = Catalogue::parse([("one.yaml".to_owned(), text)], Origin::Catalogue).unwrap();
        catalogue.scenarios()[0].clone()
    }

    fn implementation() -> Implementation {
        let text = "
apiVersion: bufconf.dev/v1alpha1
kind: Implementation
identity: {organization: o, project: p, url: u, version: '1'}
dialect: karpenter
profiles: [BUFFER-ACTIVE]
features: [ServedV1alpha1]
settings: []
variables: {nodeClass: x}
hooks: {restart: [restart-it]}
exemptions: [{scenario: CB-ACT-002, reason: known, link: there, expires: 2027-01-01}]
pools:
  - {shape: {cpu: 2, memory: 4Gi, pods: 10}, maxNodes: 5, uniqueHostnames: true, slots: [{name: a}]}
  - {shape: {cpu: 4, memory: 8Gi, pods: 10}, maxNodes: 9, slots: [{name: b}]}
";
        Implementation::parse("i.yaml", text, None).unwrap()
    }

    fn today() -> Date {
        "2026-12-01".parse().unwrap()
    }

    fn decide(given: &Given) -> Applicability {
        scenario(given).applicability(&implementation(), ClusterKind::Embedded, today())
    }

    #[rstest]
    #[case::plain(PLAIN)]
    #[case::claimed_feature(Given { level: "extended", features: "[ServedV1alpha1]", ..PLAIN })]
    #[case::second_pool(Given { needs: "{nodes: 9}", ..PLAIN })]
    #[case::hook(Given { needs: "{hooks: [restart]}", ..PLAIN })]
    #[case::variable(Given { step: "- mark: \"${implementation.nodeClass}\"", ..PLAIN })]
    #[case::own(Given { needs: "{isolation: own}", ..PLAIN })]
    #[case::own_dialect(Given { level: "provisional", dialect: "dialect: karpenter,", ..PLAIN })]
    fn runs(#[case] given: Given) {
        assert_eq!(decide(&given), Applicability::Run);
    }

    #[rstest]
    #[case(Given { level: "extended", features: "[BufferEvents]", ..PLAIN }, "the feature is not claimed: BufferEvents")]
    #[case(Given { level: "provisional", dialect: "dialect: cluster-autoscaler,", ..PLAIN }, "it judges another dialect only")]
    fn is_not_applicable(#[case] given: Given, #[case] why: &str) {
        assert_eq!(decide(&given), Applicability::NotApplicable(why.to_owned()));
    }

    #[rstest]
    #[case("{nodes: 10}", "it needs 10 nodes, and a pool has at most 9")]
    #[case("{nodes: 6, uniqueHostnames: true}", "it needs nodes with host names of their own")]
    #[case("{pool: create, limitsSettable: true}", "it needs a pool that takes limits")]
    #[case("{hooks: [drift]}", "the implementation declares no hook `drift`")]
    #[case(
        "{isolation: own, settings: {gate: off}}",
        "the implementation can't be started with the setting `gate`"
    )]
    fn could_not_run(#[case] needs: &'static str, #[case] why: &str) {
        assert_eq!(decide(&Given { needs, ..PLAIN }), Applicability::CouldNotRun(why.to_owned()));
    }

    #[test]
    fn lacks_that_only_some_set_ups_have() {
        let undeclared = Given { step: "- mark: \"${implementation.other}\"", ..PLAIN };
        let why = "the implementation declares no variable `other`";
        assert_eq!(decide(&undeclared), Applicability::CouldNotRun(why.to_owned()));

        let own = scenario(&Given { needs: "{isolation: own}", ..PLAIN });
        let on_existing = own.applicability(&implementation(), ClusterKind::Existing, today());
        assert!(matches!(on_existing, Applicability::CouldNotRun(_)));

        let mut unclaimed = implementation();
        unclaimed.profiles = vec![Profile::BufferApi];
        let why = "the profile is not claimed: BUFFER-ACTIVE, BUFFER-RETAIN";
        let decision = scenario(&PLAIN).applicability(&unclaimed, ClusterKind::Embedded, today());
        assert_eq!(decision, Applicability::NotApplicable(why.to_owned()));

        let mut poolless = implementation();
        poolless.pools.clear();
        let decision = scenario(&Given { needs: "{nodes: 1}", ..PLAIN }).applicability(
            &poolless,
            ClusterKind::Embedded,
            today(),
        );
        assert_eq!(decision, Applicability::CouldNotRun("the implementation declares no pool".to_owned()));
    }

    #[test]
    fn an_exemption_counts_to_the_end_of_its_last_day() {
        let mut exempted = scenario(&PLAIN);
        exempted.id = "CB-ACT-002".to_owned();
        let decide = |day: &str| {
            exempted.applicability(&implementation(), ClusterKind::Embedded, day.parse().unwrap())
        };
        let why = "known (there, until 2027-01-01)".to_owned();
        assert_eq!(decide("2026-12-01"), Applicability::Exempted(why.clone()));
        assert_eq!(decide("2027-01-01"), Applicability::Exempted(why));
        assert_eq!(decide("2027-01-02"), Applicability::Run);
    }
}
