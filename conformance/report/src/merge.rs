//! From entries to a report, and from the reports of shards to one.
//!
//! Entries meet in any order and may overlap: of two for the same scenario and case, what ran beats what did not, and
//! of two that ran the worse one stays, so that a second try never hides a violation. That choice is the maximum of a
//! total order, which makes merging independent of order and grouping.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::error::ReportError;
use crate::fragment::Fragment;
use crate::model::{
    Environment, Implementation, Incident, IncidentKind, Leak, Outcome, Report, SCHEMA_VERSION,
    ScenarioResult, Scope, Suite, WaitSetting,
};
use crate::order;
use crate::verdict::{self, RunVerdict};

/// What is known of a run apart from its entries.
#[derive(Clone, Debug)]
pub struct Header {
    /// Id of the run.
    pub run_id: String,
    /// Start of the run, RFC 3339.
    pub started_at: String,
    /// End of the run, RFC 3339.
    pub finished_at: String,
    /// What the verdict covers.
    pub scope: Scope,
    /// The suite.
    pub suite: Suite,
    /// What was tested.
    pub implementation: Implementation,
    /// On what.
    pub environment: Environment,
    /// The waits in force.
    pub waits: Vec<WaitSetting>,
    /// Leaks found by the last look over the whole run, besides those in the entries.
    pub leaks: Vec<Leak>,
    /// What cut the run short.
    pub incidents: Vec<Incident>,
}

/// Makes the report of a run.
///
/// `plan` has one entry for each scenario and case of the catalogue, with what was decided before the run: *not
/// applicable*, *excluded*, *exempted*, *could not run*, or *not run* for all that were to run. What has no entry in `fragments`
/// stays as planned, so a scenario that nobody reported is *not run*. Fragments of another run are incidents.
#[must_use]
pub fn merge(header: Header, plan: Vec<ScenarioResult>, fragments: Vec<Fragment>) -> Report {
    let mut incidents = header.incidents;
    let mut entries = Vec::new();
    for fragment in fragments {
        if fragment.run_id == header.run_id {
            entries.extend(fragment.results);
        } else {
            incidents.push(Incident {
                kind: IncidentKind::DamagedEntry,
                message: format!("an entry belongs to another run: {}", fragment.run_id),
            });
        }
    }
    seal(Report {
        schema_version: SCHEMA_VERSION.to_owned(),
        run_id: header.run_id,
        started_at: header.started_at,
        finished_at: header.finished_at,
        scope: header.scope,
        suite: header.suite,
        implementation: header.implementation,
        environment: header.environment,
        waits: header.waits,
        results: plan.into_iter().chain(entries).collect(),
        profiles: BTreeMap::new(),
        leaks: header.leaks,
        incidents,
        exit_code: 0,
    })
}

/// Joins the reports of shards to the report that one run would have given.
///
/// The parts must agree on suite, implementation, scope, waits and cluster. The run lasts from the first start to the
/// last end; entries' starts are moved onto that clock. The first run id in order names the whole.
pub fn join(parts: Vec<Report>) -> Result<Report, ReportError> {
    let mut starts = Vec::new();
    for part in &parts {
        starts.push(timestamp(&part.started_at)?);
        timestamp(&part.finished_at)?;
    }
    let first = starts.iter().min().copied();
    let mut shifted = parts.into_iter().zip(starts).map(|(mut part, start)| {
        let late = first.map_or(0, |first| start.as_millisecond() - first.as_millisecond());
        for result in &mut part.results {
            result.started_ms = result.started_ms.saturating_add_signed(late);
        }
        part
    });
    let Some(mut whole) = shifted.next() else {
        return Err(ReportError::Join("no reports".to_owned()));
    };
    order::sort(&mut whole);
    for mut part in shifted {
        order::sort(&mut part);
        for (what, same) in [
            ("format", whole.schema_version == part.schema_version),
            ("suite", whole.suite == part.suite),
            ("implementation", whole.implementation == part.implementation),
            ("scope", whole.scope == part.scope),
            ("waits", whole.waits == part.waits),
            ("cluster", whole.environment.cluster == part.environment.cluster),
            (
                "Kubernetes version",
                whole.environment.kubernetes_version == part.environment.kubernetes_version,
            ),
        ] {
            if !same {
                return Err(ReportError::Join(format!(
                    "{} and {} differ in their {what}",
                    whole.run_id, part.run_id
                )));
            }
        }
        whole.run_id = whole.run_id.min(part.run_id);
        whole.started_at = earlier(whole.started_at, part.started_at)?;
        whole.finished_at = later(whole.finished_at, part.finished_at)?;
        whole.environment.planes = whole.environment.planes.max(part.environment.planes);
        whole.environment.cpus = whole.environment.cpus.max(part.environment.cpus);
        whole.results.extend(part.results);
        whole.leaks.extend(part.leaks);
        whole.incidents.extend(part.incidents);
    }
    Ok(seal(whole))
}

/// Chooses one entry a scenario and case, sorts everything, and derives leaks, verdicts and exit code.
fn seal(mut report: Report) -> Report {
    // Before the choice: what an entry left behind is there, whether or not the entry stays.
    report.leaks.extend(report.results.iter().flat_map(|r| r.leaks.iter().cloned()));
    report.results = choose(report.results);
    order::sort(&mut report);
    report.profiles = verdict::profiles(&report.results, &report.implementation, report.scope);
    report.exit_code = RunVerdict::of(&report).exit_code();
    report
}

/// The entry that stays for each scenario and case. An entry for a whole scenario that did not run gives way to those
/// of its cases.
fn choose(results: Vec<ScenarioResult>) -> Vec<ScenarioResult> {
    let mut best: BTreeMap<(bool, String, Option<String>), ScenarioResult> = BTreeMap::new();
    for result in results {
        let key = (result.catalogue, result.id.clone(), result.case.clone());
        match best.get_mut(&key) {
            Some(other) => {
                if weight(&result) > weight(other) {
                    *other = result;
                }
            }
            None => {
                best.insert(key, result);
            }
        }
    }
    let tables: BTreeSet<(bool, String)> = best
        .keys()
        .filter(|(.., case)| case.is_some())
        .map(|(catalogue, id, _)| (*catalogue, id.clone()))
        .collect();
    best.into_iter()
        .filter(|((catalogue, id, case), result)| {
            case.is_some() || verdict::ran(result.outcome) || !tables.contains(&(*catalogue, id.clone()))
        })
        .map(|(_, result)| result)
        .collect()
}

/// How much an entry weighs against another one for the same scenario; never equal for entries that differ.
fn weight(result: &ScenarioResult) -> (u8, String) {
    let rank = match result.outcome {
        Outcome::Excluded => 0,
        Outcome::NotRun => 1,
        Outcome::CouldNotRun => 2,
        Outcome::NotApplicable => 3,
        Outcome::Exempted => 4,
        Outcome::Passed => 5,
        Outcome::Flaky => 6,
        Outcome::Unknown => 7,
        Outcome::Nonconformant => 8,
    };
    (rank, format!("{result:?}"))
}

/// Reads an RFC 3339 time.
fn timestamp(text: &str) -> Result<Timestamp, ReportError> {
    text.parse().map_err(|e| ReportError::Join(format!("{text:?} is no time: {e}")))
}

/// The earlier of two times.
fn earlier(a: String, b: String) -> Result<String, ReportError> {
    Ok(if (timestamp(&b)?, &b) < (timestamp(&a)?, &a) { b } else { a })
}

/// The later of two times.
fn later(a: String, b: String) -> Result<String, ReportError> {
    Ok(if (timestamp(&b)?, &b) > (timestamp(&a)?, &a) { b } else { a })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::model::{Level, Profile, ProfileVerdict};
    use crate::samples::{self, leak, scenario};

    fn header() -> Header {
        let sample = samples::report(vec![]);
        Header {
            run_id: sample.run_id,
            started_at: sample.started_at,
            finished_at: sample.finished_at,
            scope: sample.scope,
            suite: sample.suite,
            implementation: sample.implementation,
            environment: sample.environment,
            waits: sample.waits,
            leaks: vec![],
            incidents: vec![],
        }
    }

    fn fragment(results: Vec<ScenarioResult>) -> Fragment {
        Fragment { run_id: header().run_id, results }
    }

    fn table(id: &str, case: &str, outcome: Outcome) -> ScenarioResult {
        ScenarioResult { case: Some(case.into()), ..scenario(id, outcome) }
    }

    fn outcomes(report: &Report) -> Vec<(String, Outcome)> {
        let name =
            |r: &ScenarioResult| r.case.as_ref().map_or(r.id.clone(), |case| format!("{}/{case}", r.id));
        report.results.iter().map(|r| (name(r), r.outcome)).collect()
    }

    #[test]
    fn what_nobody_reported_is_as_planned() {
        let plan = vec![
            scenario("CB-ACT-001", Outcome::NotRun),
            scenario("CB-ACT-002", Outcome::NotRun),
            scenario("CB-ACT-003", Outcome::CouldNotRun),
        ];
        let report = merge(header(), plan, vec![fragment(vec![scenario("CB-ACT-001", Outcome::Passed)])]);
        assert_eq!(
            outcomes(&report),
            [
                ("CB-ACT-001".into(), Outcome::Passed),
                ("CB-ACT-002".into(), Outcome::NotRun),
                ("CB-ACT-003".into(), Outcome::CouldNotRun),
            ]
        );
        assert_eq!(report.profiles[&Profile::BufferActive], ProfileVerdict::Incomplete);
        assert_eq!(report.exit_code, 3);
        report.verify().unwrap();
    }

    #[rstest]
    #[case::cases_take_the_place_of_their_scenario(Outcome::NotRun, &[("CB-RES-001/V2", Outcome::Passed), ("CB-RES-001/V10", Outcome::Passed)])]
    #[case::but_do_not_hide_that_it_failed(
        Outcome::Unknown,
        &[("CB-RES-001", Outcome::Unknown), ("CB-RES-001/V2", Outcome::Passed), ("CB-RES-001/V10", Outcome::Passed)]
    )]
    fn tables(#[case] whole: Outcome, #[case] expected: &[(&str, Outcome)]) {
        let cases =
            vec![table("CB-RES-001", "V10", Outcome::Passed), table("CB-RES-001", "V2", Outcome::Passed)];
        let report = merge(header(), vec![scenario("CB-RES-001", whole)], vec![fragment(cases)]);
        let expected: Vec<_> =
            expected.iter().map(|(name, outcome)| ((*name).to_owned(), *outcome)).collect();
        assert_eq!(outcomes(&report), expected);
    }

    #[test]
    fn a_second_try_does_not_hide_a_violation() {
        let fragments = vec![
            fragment(vec![scenario("CB-ACT-001", Outcome::Nonconformant)]),
            fragment(vec![scenario("CB-ACT-001", Outcome::Passed)]),
        ];
        assert_eq!(merge(header(), vec![], fragments).exit_code, 1);
    }

    #[test]
    fn entries_of_another_run_are_an_incident_and_not_a_result() {
        let mut foreign = fragment(vec![scenario("CB-ACT-001", Outcome::Passed)]);
        foreign.run_id = "other".into();
        let report = merge(header(), vec![scenario("CB-ACT-001", Outcome::NotRun)], vec![foreign]);
        assert_eq!(outcomes(&report), [("CB-ACT-001".into(), Outcome::NotRun)]);
        assert_eq!(report.incidents[0].message, "an entry belongs to another run: other");
        assert_eq!(report.exit_code, 6);
    }

    #[test]
    fn leaks_of_entries_and_of_the_last_look_are_one_sorted_list() {
        let mut left = scenario("CB-ACT-004", Outcome::Passed);
        left.leaks = vec![leak("CB-ACT-004")];
        let header = Header { leaks: vec![leak("CB-ACT-009"), leak("CB-ACT-004")], ..header() };
        let report = merge(header, vec![], vec![fragment(vec![left])]);
        assert_eq!(report.leaks, [leak("CB-ACT-004"), leak("CB-ACT-009")]);
        assert_eq!(report.exit_code, 8);
    }

    #[test]
    fn shards_that_started_later_are_put_on_the_same_clock() {
        let part = |at: &str, id| {
            let mut entry = scenario(id, Outcome::Passed);
            entry.started_ms = 500;
            let header = Header {
                started_at: format!("2026-12-01T09:{at}"),
                finished_at: format!("2026-12-01T10:{at}"),
                ..header()
            };
            merge(header, vec![], vec![fragment(vec![entry])])
        };
        let whole = join(vec![part("31:00.250Z", "CB-ACT-002"), part("30:59Z", "CB-ACT-001")]).unwrap();
        let starts: Vec<u64> = whole.results.iter().map(|r| r.started_ms).collect();
        assert_eq!(starts, [500, 1_750]);
        assert_eq!(whole.started_at, "2026-12-01T09:30:59Z");
        assert_eq!(whole.finished_at, "2026-12-01T10:31:00.250Z");
        whole.verify().unwrap();
    }

    #[rstest]
    #[case(|r: &mut Report| r.suite.catalogue_hash = "sha256:0".into(), "suite")]
    #[case(|r: &mut Report| r.implementation.version = "0".into(), "implementation")]
    #[case(|r: &mut Report| r.scope = Scope::Selection, "scope")]
    #[case(|r: &mut Report| r.waits[0].patience_ms += 1, "waits")]
    #[case(|r: &mut Report| r.environment.kubernetes_version = "v1.35.0".into(), "Kubernetes version")]
    fn parts_of_different_runs_do_not_join(#[case] change: impl Fn(&mut Report), #[case] what: &str) {
        let one = samples::full();
        let mut other = one.clone();
        change(&mut other);
        let error = join(vec![one, other]).unwrap_err().to_string();
        assert_eq!(error, format!("cannot join: r7k2 and r7k2 differ in their {what}"));
    }

    #[test]
    fn nothing_and_broken_clocks_do_not_join() {
        assert_eq!(join(vec![]).unwrap_err().to_string(), "cannot join: no reports");
        let mut report = samples::full();
        report.finished_at = "yesterday".into();
        let error = join(vec![report]).unwrap_err().to_string();
        assert!(error.starts_with("cannot join: \"yesterday\" is no time"), "{error}");
    }

    fn entry() -> impl Strategy<Value = ScenarioResult> {
        let outcome = prop::sample::select(vec![
            Outcome::Passed,
            Outcome::Nonconformant,
            Outcome::Unknown,
            Outcome::Flaky,
            Outcome::NotApplicable,
            Outcome::Excluded,
            Outcome::Exempted,
            Outcome::CouldNotRun,
            Outcome::NotRun,
        ]);
        let level = prop::sample::select(vec![Level::Core, Level::Extended, Level::Provisional]);
        let case = prop::option::of(0..12_u8);
        (0..6_u8, case, outcome, level, any::<bool>(), 0..3_u64).prop_map(
            |(id, case, outcome, level, catalogue, started_ms)| ScenarioResult {
                case: case.map(|case| format!("V{case}")),
                level,
                catalogue,
                started_ms,
                leaks: if started_ms == 2 { vec![leak("CB-ACT-000")] } else { vec![] },
                ..scenario(&format!("CB-ACT-{id:03}"), outcome)
            },
        )
    }

    proptest! {
        #[test]
        fn the_order_of_fragments_does_not_matter(
            (entries, shuffled) in prop::collection::vec(entry(), 0..20)
                .prop_flat_map(|entries| (Just(entries.clone()), Just(entries).prop_shuffle()))
        ) {
            let one_each = |entries: Vec<ScenarioResult>| entries.into_iter().map(|e| fragment(vec![e])).collect();
            let a = merge(header(), vec![], one_each(entries));
            let b = merge(header(), vec![], one_each(shuffled));
            prop_assert_eq!(a.to_json().unwrap(), b.to_json().unwrap());
            prop_assert!(a.verify().is_ok());
        }

        #[test]
        fn shards_join_to_the_report_of_one_run(
            entries in prop::collection::vec((entry(), 0..3_usize), 0..20),
            grouped in any::<bool>(),
        ) {
            let all: Vec<ScenarioResult> = entries.iter().map(|(e, _)| e.clone()).collect();
            let whole = merge(header(), vec![], vec![fragment(all)]);
            let shard = |n| {
                let own = entries.iter().filter(|(_, s)| *s == n).map(|(e, _)| e.clone()).collect();
                merge(header(), vec![], vec![fragment(own)])
            };
            let joined = if grouped {
                join(vec![shard(2), join(vec![shard(1), shard(0)]).unwrap()])
            } else {
                join(vec![shard(0), shard(1), shard(2)])
            };
            prop_assert_eq!(joined.unwrap().to_json().unwrap(), whole.to_json().unwrap());
        }

        #[test]
        fn joining_a_report_with_itself_changes_nothing(entries in prop::collection::vec(entry(), 0..20)) {
            let report = merge(header(), vec![], vec![fragment(entries)]);
            prop_assert_eq!(join(vec![report.clone(), report.clone()]).unwrap(), report);
        }
    }
}
