//! The head: id, name, sources, level and features, needs.

use std::{collections::BTreeSet, path::Path};

use conformance_report::model::Level;

use crate::{
    implementation::Hook,
    scenario::{
        lift::Faults,
        lint::place,
        model::{Isolation, Origin, PoolNeed, Scenario, Settings},
        raw::Node,
    },
};

/// Areas of the suite's own ids.
const AREAS: [&str; 7] = ["API", "RES", "ACT", "RET", "QUO", "LIF", "INT"];

pub(super) fn check(scenario: &Scenario, root: &Node, faults: &mut Faults<'_>) {
    let at = |path: &[&str]| place(root, path);

    if let Some(problem) = id_problem(&scenario.id, scenario.origin) {
        faults.add(at(&["spec", "id"]), problem);
    }
    let stem = Path::new(&scenario.file).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if scenario.name != stem {
        let message = format!("the name must be that of the file, `{stem}`");
        faults.add(at(&["metadata", "name"]), message);
    }
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if scenario.name.is_empty() || !scenario.name.chars().all(plain) {
        faults.add(at(&["metadata", "name"]), "a name has lower-case letters, digits and `-` only");
    }
    if scenario.title.trim().is_empty() || scenario.title.contains('\n') {
        faults.add(at(&["spec", "title"]), "a title is one line");
    }
    if scenario.sources.is_empty() {
        faults.add(at(&["spec", "sources"]), "at least one source: where is the requirement written down?");
    }
    if let Some(index) = scenario
        .sources
        .iter()
        .position(|source| source.title.trim().is_empty() || source.reference.trim().is_empty())
    {
        let sources = root.get("spec").and_then(|spec| spec.get("sources")).map_or(&[][..], Node::items);
        faults.add(sources.get(index).map_or(root.at, |node| node.at), "a source has a title and a ref");
    }
    if scenario.profiles.is_empty() {
        faults.add(at(&["spec", "profiles"]), "at least one profile");
    }
    if scenario.profiles.iter().collect::<BTreeSet<_>>().len() < scenario.profiles.len() {
        faults.add(at(&["spec", "profiles"]), "a profile is here twice");
    }
    if scenario.features.iter().collect::<BTreeSet<_>>().len() < scenario.features.len() {
        faults.add(at(&["spec", "features"]), "a feature is here twice");
    }
    match scenario.level {
        Level::Core if !scenario.features.is_empty() => faults.add(
            at(&["spec", "features"]),
            "a core scenario is for everybody and needs no feature; with one it is `extended`",
        ),
        Level::Extended if scenario.features.is_empty() => faults.add(
            at(&["spec", "level"]),
            "an extended scenario names the feature that it is about; without one it is `core`",
        ),
        Level::Core | Level::Extended | Level::Provisional => {}
    }
    needs(scenario, root, faults);
}

fn id_problem(id: &str, origin: Origin) -> Option<String> {
    let parts: Vec<&str> = id.split('-').collect();
    let shaped = |prefix: &str, area: &str, number: &str| {
        prefix.starts_with(|c: char| c.is_ascii_uppercase())
            && prefix.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
            && area.len() == 3
            && area.chars().all(|c| c.is_ascii_uppercase())
            && number.len() == 3
            && number.chars().all(|c| c.is_ascii_digit())
    };
    let origin = match (origin, parts.as_slice()) {
        (Origin::Any, ["CB", ..]) => Origin::Catalogue,
        (Origin::Any, _) => Origin::User,
        _ => origin,
    };
    match (origin, parts.as_slice()) {
        (Origin::Catalogue, ["CB", area, number]) if shaped("CB", area, number) && AREAS.contains(area) => {
            None
        }
        (Origin::Catalogue, _) => {
            Some(format!("an id is CB-AREA-000 with an area of {}, not `{id}`", AREAS.join(", ")))
        }
        (Origin::User, ["CB", ..]) => {
            Some(format!("ids that begin with CB- are the suite's own; `{id}` needs a prefix of yours"))
        }
        (_, [prefix, area, number]) if shaped(prefix, area, number) => None,
        _ => Some(format!("an id is like MY-ACT-001, not `{id}`")),
    }
}

fn needs(scenario: &Scenario, root: &Node, faults: &mut Faults<'_>) {
    let needs = &scenario.needs;
    let at = |key: &str| place(root, &["spec", "needs", key]);
    if needs.settings != Settings::default() && needs.isolation != Isolation::Own {
        faults.add(at("settings"), "settings need a subject of its own: `isolation: own`");
    }
    if needs.pool == Some(PoolNeed::None) && (needs.unique_hostnames || needs.limits_settable) {
        faults.add(at("pool"), "demands on a pool, and no pool");
    }
    if let Some(hook) = needs.hooks.iter().find(|hook| matches!(hook, Hook::Install | Hook::Uninstall)) {
        faults.add(at("hooks"), format!("`{hook}` is the harness's own hook"));
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("CB-ACT-001", Origin::Catalogue, true)]
    #[case("CB-FOO-001", Origin::Catalogue, false)]
    #[case("CB-ACT-1", Origin::Catalogue, false)]
    #[case("CB-ACT-001-x", Origin::Catalogue, false)]
    #[case("cb-act-001", Origin::Catalogue, false)]
    #[case("MY-ACT-001", Origin::Catalogue, false)]
    #[case("MY-ACT-001", Origin::User, true)]
    #[case("M2-FOO-001", Origin::User, true)]
    #[case("CB-ACT-001", Origin::User, false)]
    #[case("2M-ACT-001", Origin::User, false)]
    #[case("", Origin::User, false)]
    #[case("CB-ACT-001", Origin::Any, true)]
    #[case("CB-FOO-001", Origin::Any, false)]
    #[case("MY-FOO-001", Origin::Any, true)]
    #[case("MY-FOO", Origin::Any, false)]
    fn ids(#[case] id: &str, #[case] origin: Origin, #[case] good: bool) {
        assert_eq!(id_problem(id, origin).is_none(), good);
    }
}
