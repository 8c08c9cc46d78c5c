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
    /// The first of its pools that has what is needed, or what the nearest one lacks.
    pub fn pool_for(&self, needs: &Needs) -> Result<&Pool, String> {
        let mut lacks = "the implementation declares no pool".to_owned();
        for pool in &self.pools {
            if needs.nodes > pool.max_nodes {
                lacks = format!("it needs {} nodes, and a pool has at most {}", needs.nodes, pool.max_nodes);
            } else if needs.unique_hostnames && !pool.unique_hostnames {
                lacks = "it needs nodes with host names of their own".to_owned();
            } else if needs.limits_settable && !pool.limits_settable {
                lacks = "it needs a pool that takes limits".to_owned();
            } else {
                return Ok(pool);
            }
        }
        Err(lacks)
    }
}

/// Name of a profile as files write it.
fn profile_name(profile: Profile) -> String {
    // a unit variant always serializes to its name
    serde_json::to_value(profile).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}
