//! Verdicts: pure functions of results and claims.
//!
//! A profile is judged by the core scenarios and by the extended ones whose features are all claimed. Provisional
//! scenarios, the provisional profile and the user's own scenarios never count.

use std::collections::BTreeMap;

use crate::model::{
    Implementation, Incident, IncidentKind, Level, Outcome, Profile, ProfileVerdict, Report, ScenarioResult,
    Scope,
};

/// The profiles that get a verdict. `INTEROP` is provisional as a whole and therefore absent.
pub const JUDGED: [Profile; 6] = [
    Profile::BufferApi,
    Profile::BufferResolve,
    Profile::BufferActive,
    Profile::BufferRetain,
    Profile::BufferQuota,
    Profile::NodeLifecycle,
];

/// What is said of a whole run, in the order in which the reasons apply.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum RunVerdict {
    /// Usage or configuration was wrong.
    Usage,
    /// The environment failed.
    Environment,
    /// Ended by SIGINT.
    Interrupted,
    /// Ended by SIGTERM.
    Terminated,
    /// Ended by its deadline.
    Deadline,
    /// The report is damaged.
    BadReport,
    /// No scenario was selected, or none ran.
    NothingRan,
    /// A requirement was violated.
    Violation,
    /// Something was left behind.
    Leaks,
    /// Something passed only when it was repeated.
    Flaky,
    /// No violation, but conformance is not established.
    Incomplete,
    /// Every judged profile is conformant.
    Conformant,
}

impl RunVerdict {
    /// The verdict of a report, from its entries alone: neither its exit code nor its profile verdicts are believed.
    #[must_use]
    pub fn of(report: &Report) -> Self {
        let profiles = profiles(&report.results, &report.implementation, report.scope);
        let judged: Vec<&ScenarioResult> = judged(report).collect();
        let any = |wanted: Outcome| judged.iter().any(|r| r.outcome == wanted);
        let established = if own_only(&report.results) {
            judged.iter().all(|r| matches!(r.outcome, Outcome::Passed | Outcome::Flaky))
        } else {
            established(&profiles)
        };
        if let Some(first) = report.incidents.iter().map(|Incident { kind, .. }| *kind).min() {
            first.into()
        } else if !report.results.iter().any(|r| ran(r.outcome)) {
            Self::NothingRan
        } else if any(Outcome::Nonconformant) {
            Self::Violation
        } else if !report.leaks.is_empty() || report.results.iter().any(|r| !r.leaks.is_empty()) {
            Self::Leaks
        } else if any(Outcome::Flaky) {
            Self::Flaky
        } else if established {
            Self::Conformant
        } else {
            Self::Incomplete
        }
    }

    /// Exit code of the process.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Conformant => 0,
            Self::Violation => 1,
            Self::Usage => 2,
            Self::Incomplete => 3,
            Self::NothingRan => 4,
            Self::Environment => 5,
            Self::BadReport => 6,
            Self::Flaky => 7,
            Self::Leaks => 8,
            Self::Deadline => 124,
            Self::Interrupted => 130,
            Self::Terminated => 143,
        }
    }
}

impl From<IncidentKind> for RunVerdict {
    fn from(kind: IncidentKind) -> Self {
        match kind {
            IncidentKind::Usage => Self::Usage,
            IncidentKind::Environment => Self::Environment,
            IncidentKind::Interrupted => Self::Interrupted,
            IncidentKind::Terminated => Self::Terminated,
            IncidentKind::Deadline => Self::Deadline,
            IncidentKind::DamagedEntry => Self::BadReport,
        }
    }
}

/// Whether a result counts for the verdict of a profile.
#[must_use]
pub fn counts_for(result: &ScenarioResult, implementation: &Implementation, profile: Profile) -> bool {
    let binding = match result.level {
        Level::Core => true,
        Level::Extended => result.features.iter().all(|f| implementation.features.contains(f)),
        Level::Provisional => false,
    };
    result.catalogue
        && binding
        && JUDGED.contains(&profile)
        && result.profiles.contains(&profile)
        && implementation.profiles.contains(&profile)
}

/// Whether a result counts for the verdict of any profile.
#[must_use]
pub fn counts(result: &ScenarioResult, implementation: &Implementation) -> bool {
    JUDGED.iter().any(|profile| counts_for(result, implementation, *profile))
}

/// The verdicts of all profiles that this run says something about: all of [`JUDGED`] in scope *full*, only those with
/// a selected scenario in scope *selection*.
#[must_use]
pub fn profiles(
    results: &[ScenarioResult],
    implementation: &Implementation,
    scope: Scope,
) -> BTreeMap<Profile, ProfileVerdict> {
    JUDGED
        .into_iter()
        .filter_map(|profile| {
            let verdict = if implementation.profiles.contains(&profile) {
                let counted = results.iter().filter(|r| counts_for(r, implementation, profile));
                verdict(counted.map(|r| r.outcome), scope)
            } else {
                let selected = results
                    .iter()
                    .any(|r| r.catalogue && r.profiles.contains(&profile) && r.outcome != Outcome::Excluded);
                (scope == Scope::Full || selected).then_some(ProfileVerdict::NotClaimed)
            };
            Some((profile, verdict?))
        })
        .collect()
}

/// Verdict of one claimed profile from the outcomes that count for it. `None`: nothing of it was selected.
///
/// *Not applicable* is no excuse for a scenario that counts: all features that it needs are claimed.
/// Exemptions alone prove nothing, at least one scenario must have passed.
fn verdict(outcomes: impl Iterator<Item = Outcome>, scope: Scope) -> Option<ProfileVerdict> {
    let seen: Vec<Outcome> = outcomes.filter(|o| scope == Scope::Full || *o != Outcome::Excluded).collect();
    let any = |wanted: &[Outcome]| seen.iter().any(|o| wanted.contains(o));
    if seen.is_empty() && scope == Scope::Selection {
        None
    } else if any(&[Outcome::Nonconformant]) {
        Some(ProfileVerdict::Nonconformant)
    } else if any(&[
        Outcome::Unknown,
        Outcome::CouldNotRun,
        Outcome::NotRun,
        Outcome::NotApplicable,
        Outcome::Excluded,
    ]) || !any(&[Outcome::Passed, Outcome::Flaky])
    {
        Some(ProfileVerdict::Incomplete)
    } else if any(&[Outcome::Exempted]) {
        Some(ProfileVerdict::ConformantWithExemptions)
    } else {
        Some(ProfileVerdict::Conformant)
    }
}

/// Whether these verdicts establish conformance: at least one profile is judged, and each judged one is conformant.
fn established(profiles: &BTreeMap<Profile, ProfileVerdict>) -> bool {
    let mut judged = profiles.values().filter(|v| **v != ProfileVerdict::NotClaimed).peekable();
    judged.peek().is_some()
        && judged.all(|v| matches!(v, ProfileVerdict::Conformant | ProfileVerdict::ConformantWithExemptions))
}

/// A scenario that reached the cluster.
pub(crate) const fn ran(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Passed | Outcome::Nonconformant | Outcome::Unknown | Outcome::Flaky)
}

/// A run of nothing but the user's own scenarios has no profile verdict; its exit code is theirs.
pub(crate) fn own_only(results: &[ScenarioResult]) -> bool {
    let mut chosen = results.iter().filter(|r| r.outcome != Outcome::Excluded).peekable();
    chosen.peek().is_some() && chosen.all(|r| !r.catalogue)
}

/// The results that decide the run verdict.
fn judged(report: &Report) -> impl Iterator<Item = &ScenarioResult> {
    let own = own_only(&report.results);
    report.results.iter().filter(move |r| {
        (own && r.level != Level::Provisional && r.outcome != Outcome::Excluded)
            || counts(r, &report.implementation)
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::samples::{active, incident, leak, report, scenario};
    use Outcome::{
        CouldNotRun, Excluded, Exempted, Flaky, Nonconformant, NotApplicable, NotRun, Passed, Unknown,
    };
    use ProfileVerdict as V;

    #[rstest]
    #[case::all_passed(&[Passed, Passed], Scope::Full, Some(V::Conformant))]
    #[case::flaky_is_passed(&[Passed, Flaky], Scope::Full, Some(V::Conformant))]
    #[case::violation_beats_all(&[Unknown, Nonconformant, Exempted, NotRun], Scope::Full, Some(V::Nonconformant))]
    #[case::unknown(&[Passed, Unknown], Scope::Full, Some(V::Incomplete))]
    #[case::could_not_run(&[Passed, CouldNotRun], Scope::Full, Some(V::Incomplete))]
    #[case::not_run(&[Passed, NotRun], Scope::Full, Some(V::Incomplete))]
    #[case::not_run_selected(&[Passed, NotRun], Scope::Selection, Some(V::Incomplete))]
    #[case::claimed_yet_not_applicable(&[Passed, NotApplicable], Scope::Full, Some(V::Incomplete))]
    #[case::excluded(&[Passed, Excluded], Scope::Full, Some(V::Incomplete))]
    #[case::not_selected(&[Passed, Excluded], Scope::Selection, Some(V::Conformant))]
    #[case::nothing_selected(&[Excluded], Scope::Selection, None)]
    #[case::nothing_in_selection(&[], Scope::Selection, None)]
    #[case::nothing_in_catalogue(&[], Scope::Full, Some(V::Incomplete))]
    #[case::exempted(&[Passed, Exempted], Scope::Full, Some(V::ConformantWithExemptions))]
    #[case::exemptions_hide_no_gap(&[Passed, Exempted, NotRun], Scope::Full, Some(V::Incomplete))]
    #[case::only_exemptions(&[Exempted], Scope::Full, Some(V::Incomplete))]
    fn a_profile(#[case] outcomes: &[Outcome], #[case] scope: Scope, #[case] expected: Option<V>) {
        assert_eq!(verdict(outcomes.iter().copied(), scope), expected);
    }

    #[rstest]
    #[case::core(Level::Core, &[], true, true)]
    #[case::core_with_an_unclaimed_feature(Level::Core, &["Unclaimed"], true, true)]
    #[case::extended_claimed(Level::Extended, &["ObservedGeneration"], true, true)]
    #[case::extended_unclaimed(Level::Extended, &["Unclaimed"], true, false)]
    #[case::extended_half_claimed(Level::Extended, &["ObservedGeneration", "Unclaimed"], true, false)]
    #[case::provisional(Level::Provisional, &[], true, false)]
    #[case::own(Level::Core, &[], false, false)]
    fn what_counts(
        #[case] level: Level,
        #[case] features: &[&str],
        #[case] catalogue: bool,
        #[case] expected: bool,
    ) {
        let mut result = scenario("CB-ACT-001", Passed);
        result.level = level;
        result.features = features.iter().map(ToString::to_string).collect();
        result.catalogue = catalogue;
        let implementation = report(vec![]).implementation;
        assert_eq!(counts_for(&result, &implementation, Profile::BufferActive), expected);
        assert_eq!(counts(&result, &implementation), expected);
        assert!(!counts_for(&result, &implementation, Profile::BufferApi), "not a scenario of this profile");
        result.profiles = vec![Profile::BufferQuota, Profile::Interop];
        assert!(!counts(&result, &implementation), "neither an unclaimed nor the provisional profile counts");
    }

    #[test]
    fn full_scope_lists_every_judged_profile_and_selection_only_what_was_selected() {
        let mut report = report(vec![scenario("CB-ACT-001", Passed), scenario("CB-QUO-001", NotApplicable)]);
        report.results[1].profiles = vec![Profile::BufferQuota];
        report.implementation.profiles = vec![Profile::BufferActive, Profile::BufferApi, Profile::Interop];
        let verdicts = |scope| profiles(&report.results, &report.implementation, scope);
        assert_eq!(
            verdicts(Scope::Full),
            BTreeMap::from([
                (Profile::BufferApi, V::Incomplete),
                (Profile::BufferResolve, V::NotClaimed),
                (Profile::BufferActive, V::Conformant),
                (Profile::BufferRetain, V::NotClaimed),
                (Profile::BufferQuota, V::NotClaimed),
                (Profile::NodeLifecycle, V::NotClaimed),
            ])
        );
        assert_eq!(
            verdicts(Scope::Selection),
            BTreeMap::from([(Profile::BufferActive, V::Conformant), (Profile::BufferQuota, V::NotClaimed),])
        );
    }

    #[rstest]
    #[case::conformant(&[Passed], 0)]
    #[case::with_exemptions(&[Passed, Exempted], 0)]
    #[case::violation(&[Passed, Nonconformant, Flaky, Unknown], 1)]
    #[case::incomplete(&[Passed, Unknown], 3)]
    #[case::could_not_run(&[Passed, CouldNotRun], 3)]
    #[case::nothing_selected(&[], 4)]
    #[case::nothing_ran(&[CouldNotRun, NotRun, Excluded, NotApplicable, Exempted], 4)]
    #[case::flaky_beats_incomplete(&[Flaky, Unknown], 7)]
    fn a_run_of_outcomes(#[case] outcomes: &[Outcome], #[case] code: u8) {
        let results = outcomes.iter().enumerate().map(|(i, o)| scenario(&format!("CB-ACT-{i:03}"), *o));
        assert_eq!(RunVerdict::of(&active(results.collect())).exit_code(), code);
    }

    #[rstest]
    #[case::usage(&[IncidentKind::DamagedEntry, IncidentKind::Environment, IncidentKind::Usage], 2)]
    #[case::environment(&[IncidentKind::Interrupted, IncidentKind::Environment], 5)]
    #[case::interrupted(&[IncidentKind::Deadline, IncidentKind::Terminated, IncidentKind::Interrupted], 130)]
    #[case::terminated(&[IncidentKind::Deadline, IncidentKind::Terminated], 143)]
    #[case::deadline(&[IncidentKind::DamagedEntry, IncidentKind::Deadline], 124)]
    #[case::damaged(&[IncidentKind::DamagedEntry], 6)]
    fn incidents_come_first(#[case] kinds: &[IncidentKind], #[case] code: u8) {
        let mut report = active(vec![scenario("CB-ACT-001", Nonconformant)]);
        report.incidents = kinds.iter().map(|kind| incident(*kind)).collect();
        assert_eq!(RunVerdict::of(&report).exit_code(), code);
        report.results.clear();
        assert_eq!(RunVerdict::of(&report).exit_code(), code, "also when nothing ran");
    }

    #[rstest]
    #[case::leaks_after_a_pass(&[Passed], 8)]
    #[case::leaks_beat_flaky_and_incomplete(&[Flaky, Unknown], 8)]
    #[case::violation_beats_leaks(&[Nonconformant], 1)]
    #[case::nothing_ran_beats_leaks(&[NotRun], 4)]
    fn leaks(#[case] outcomes: &[Outcome], #[case] code: u8) {
        let results = outcomes.iter().enumerate().map(|(i, o)| scenario(&format!("CB-ACT-{i:03}"), *o));
        let mut of_run = active(results.collect());
        let mut of_scenario = of_run.clone();
        of_run.leaks = vec![leak("CB-ACT-000")];
        of_scenario.results[0].leaks = vec![leak("CB-ACT-000")];
        assert_eq!(RunVerdict::of(&of_run).exit_code(), code);
        assert_eq!(RunVerdict::of(&of_scenario).exit_code(), code);
    }

    #[rstest]
    #[case::provisional_failed(Level::Provisional, true, Nonconformant)]
    #[case::own_failed(Level::Core, false, Nonconformant)]
    #[case::own_unknown(Level::Core, false, Unknown)]
    #[case::provisional_flaky(Level::Provisional, true, Flaky)]
    fn what_never_counts_changes_nothing(
        #[case] level: Level,
        #[case] catalogue: bool,
        #[case] outcome: Outcome,
    ) {
        let mut extra = scenario("CB-ACT-002", outcome);
        extra.level = level;
        extra.catalogue = catalogue;
        let report = active(vec![scenario("CB-ACT-001", Passed), extra]);
        assert_eq!(RunVerdict::of(&report), RunVerdict::Conformant);
    }

    #[rstest]
    #[case::passed(&[Passed], 0)]
    #[case::failed(&[Passed, Nonconformant], 1)]
    #[case::unknown(&[Passed, Unknown], 3)]
    #[case::one_left_out(&[Passed, Excluded], 0)]
    fn own_scenarios_alone_have_an_exit_code_but_no_verdict(#[case] outcomes: &[Outcome], #[case] code: u8) {
        let results = outcomes
            .iter()
            .enumerate()
            .map(|(i, o)| ScenarioResult { catalogue: false, ..scenario(&format!("MY-{i}"), *o) });
        let mut report = active(results.collect());
        report.scope = Scope::Selection;
        assert_eq!(profiles(&report.results, &report.implementation, report.scope), BTreeMap::new());
        assert_eq!(RunVerdict::of(&report).exit_code(), code);
    }

    #[test]
    fn a_run_that_nothing_counts_in_establishes_nothing() {
        let mut provisional = scenario("CB-ACT-001", Passed);
        provisional.level = Level::Provisional;
        let mut report = active(vec![provisional]);
        report.scope = Scope::Selection;
        assert_eq!(RunVerdict::of(&report), RunVerdict::Incomplete);
    }
}
