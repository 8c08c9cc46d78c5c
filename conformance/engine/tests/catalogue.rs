//! The committed scenarios are sound, those in `broken/` are refused with the message beside them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use conformance_engine::{
    catalogue::{Catalogue, SelectError, Selection},
    rows::{Class, Row},
    scenario::Origin,
};
use rstest::rstest;

fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

/// Path below the scenarios folder and text of every YAML file.
fn files(below: &Path) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut folders = vec![below.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "yaml") {
                let name = path.strip_prefix(scenarios()).unwrap().to_str().unwrap().to_owned();
                files.push((name, fs::read_to_string(path).unwrap()));
            }
        }
    }
    files
}

fn committed() -> Vec<(String, String)> {
    files(&scenarios()).into_iter().filter(|(path, _)| !path.starts_with("broken/")).collect()
}

/// What is said about files; empty when they are sound.
fn refusal(files: Vec<(String, String)>, origin: Origin) -> String {
    let diagnostics = Catalogue::parse(files, origin).err().unwrap_or_default();
    diagnostics.iter().map(|diagnostic| format!("{diagnostic}\n")).collect::<Vec<_>>().concat()
}

#[test]
fn the_committed_scenarios_are_sound() {
    let files = committed();
    assert!(files.len() >= 8, "the folder is not where the test looks");
    assert_eq!(refusal(files, Origin::Catalogue), "");
}

/// Rows that are to be judged and have no scenario yet. The list only gets shorter.
const WITHOUT_SCENARIO: [&str; 8] = ["A14", "B11", "B13", "B14", "C4", "C9", "C14", "I1"];

#[test]
fn every_row_that_judges_has_a_scenario_and_every_scenario_a_row() {
    let catalogue = Catalogue::parse(committed(), Origin::Catalogue).unwrap();
    let judged = |row: &Row| row.classes.iter().any(|c| matches!(c, Class::Core | Class::Extended(_)));
    let coverage = catalogue.coverage();
    let without = coverage.iter().filter(|(row, scenarios)| judged(row) && scenarios.is_empty());
    let without: Vec<_> = without.map(|(row, _)| row.id).collect();
    assert_eq!(without, WITHOUT_SCENARIO);
    for scenario in catalogue.scenarios() {
        let has_row = coverage.iter().any(|(_, all)| all.iter().any(|one| one.id == scenario.id));
        assert!(has_row, "{}", scenario.id);
    }
}

#[test]
fn broken_scenarios_are_refused_with_the_message_beside_them() {
    let mut stale = Vec::new();
    let broken = files(&scenarios().join("broken"));
    assert!(broken.len() > 60);
    for (path, text) in broken {
        let beside = scenarios().join(&path).with_extension("txt");
        let said = refusal(vec![(path.clone(), text)], Origin::Catalogue);
        assert_ne!(said, "", "{path} must be refused");
        assert!(said.starts_with(&path), "{path}: the message names the file");
        if std::env::var_os("BUFCONF_GENERATE").is_some() {
            fs::write(&beside, &said).unwrap();
        }
        let expected = fs::read_to_string(&beside).unwrap_or_default();
        if said != expected {
            stale.push(format!("--- {path} must say\n{expected}--- but says\n{said}"));
        }
    }
    assert!(stale.is_empty(), "{}", stale.join("\n"));
}

#[test]
fn the_example_of_the_readme_is_sound() {
    let readme = fs::read_to_string(scenarios().join("README.md")).unwrap();
    let (_, rest) = readme.split_once("```yaml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    assert_eq!(refusal(vec![("grows.yaml".to_owned(), example.to_owned())], Origin::User), "");
}

const MINIMAL: &str = "
apiVersion: bufconf.dev/v1alpha1
kind: Scenario
metadata: {name: NAME}
spec:
  id: ID
  title: A title
  level: core
  profiles: [BUFFER-RESOLVE]
  sources: [{title: API text, ref: here}]
  steps:
    - absent: {req: H1, resource: {apiVersion: v1, kind: Pod, name: web}}
";

fn minimal(path: &str, id: &str) -> (String, String) {
    let name = Path::new(path).file_stem().unwrap().to_str().unwrap();
    (path.to_owned(), MINIMAL.replace("NAME", name).replace("ID", id))
}

#[test]
fn ids_and_names_are_unique() {
    let files = vec![minimal("a/one.yaml", "CB-RES-001"), minimal("b/one.yaml", "CB-RES-001")];
    insta::assert_snapshot!(refusal(files, Origin::Catalogue), @r"
    b/one.yaml:4:18: the name `one` is that of a/one.yaml too
       |
     4 | metadata: {name: one}
       |                  ^^^
    b/one.yaml:6:7: the id `CB-RES-001` is that of a/one.yaml too
       |
     6 |   id: CB-RES-001
       |       ^^^^^^^^^^
    ");
}

#[test]
fn a_users_scenarios_stand_beside_the_suites() {
    let suite = Catalogue::parse([minimal("one.yaml", "CB-RES-001")], Origin::Catalogue).unwrap();
    let mine = Catalogue::parse([minimal("two.yaml", "MY-RES-001")], Origin::User).unwrap();
    let hash = suite.hash().to_owned();
    let both = suite.with(mine).unwrap();
    assert_eq!(both.hash(), hash, "the hash is that of the suite");
    let origins: Vec<_> = both.scenarios().iter().map(|scenario| scenario.origin).collect();
    assert_eq!(origins, [Origin::Catalogue, Origin::User]);
    let again = Catalogue::parse([minimal("one.yaml", "MY-RES-002")], Origin::User).unwrap();
    assert_eq!(both.with(again).unwrap_err().len(), 1, "a name that is taken");
}

#[test]
fn the_hash_follows_every_path_and_text_and_not_the_order() {
    let parse =
        |files: Vec<(String, String)>| Catalogue::parse(files, Origin::Catalogue).unwrap().hash().to_owned();
    let (one, two) = (minimal("one.yaml", "CB-RES-001"), minimal("two.yaml", "CB-RES-002"));
    let hash = parse(vec![one.clone(), two.clone()]);
    assert_eq!(hash.len(), 64);
    assert_eq!(hash, parse(vec![two.clone(), one.clone()]));
    assert_ne!(hash, parse(vec![one.clone()]));
    assert_ne!(hash, parse(vec![(format!("x/{}", one.0), one.1.clone()), two.clone()]));
    assert_ne!(hash, parse(vec![(one.0, one.1 + "# a comment\n"), two]));
}

fn selection(scenarios: &[&str], profiles: &[&str], features: &[&str]) -> Selection {
    let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    Selection { scenarios: own(scenarios), profiles: own(profiles), features: own(features) }
}

#[rstest]
#[case(selection(&["clean-up", "CB-ACT-001"], &[], &[]), &["CB-ACT-001", "CB-RET-002"])]
#[case(selection(&[], &["INTEROP"], &[]), &["CB-RES-015"])]
#[case(selection(&["clean-up", "guide"], &["BUFFER-ACTIVE"], &["ServedV1alpha1"]), &["CB-ACT-005"])]
fn selections(#[case] selection: Selection, #[case] ids: &[&str]) {
    let catalogue = Catalogue::parse(committed(), Origin::Catalogue).unwrap();
    let chosen: Vec<_> = catalogue.select(&selection).unwrap().iter().map(|scenario| &*scenario.id).collect();
    assert_eq!(chosen, ids);
}

#[rstest]
#[case(selection(&["clean-upp"], &[], &[]), "unknown scenario `clean-upp`, did you mean `clean-up`?")]
#[case(selection(&["CB-RET-02"], &[], &[]), "unknown scenario `CB-RET-02`, did you mean `CB-RET-002`?")]
#[case(selection(&[], &["BUFFER-RETAN"], &[]), "unknown profile `BUFFER-RETAN`, did you mean `BUFFER-RETAIN`?")]
#[case(selection(&[], &[], &["ServedV1alpa1"]), "unknown feature `ServedV1alpa1`, did you mean `ServedV1alpha1`?")]
#[case(selection(&["clean-up"], &["BUFFER-QUOTA"], &[]), "no scenario matches the selection")]
fn bad_selections(#[case] selection: Selection, #[case] message: &str) {
    let catalogue = Catalogue::parse(committed(), Origin::Catalogue).unwrap();
    let error: SelectError = catalogue.select(&selection).unwrap_err();
    assert_eq!(error.to_string(), message);
}

fn hostile_table() -> String {
    let cases: Vec<_> = (0..2000).map(|i| format!("    - {{name: c{i}}}\n")).collect();
    let (head, steps) = MINIMAL.split_once("  steps:\n").unwrap();
    format!("{head}  cases:\n{}  steps:\n{}", cases.concat(), steps.repeat(1000))
}

fn hostile_buffers() -> String {
    let buffer = |i| {
        format!("        - {{apiVersion: v1, kind: CapacityBuffer, metadata: {{name: buffer-number-{i}}}}}\n")
    };
    let made: Vec<_> = (0..2000).map(buffer).collect();
    let wanted: Vec<_> = (0..2000).map(|i| format!("bufer-number-{i}")).collect();
    format!("{MINIMAL}    - apply:\n{}    - headroom: {{buffers: [{}]}}\n", made.concat(), wanted.join(", "))
}

/// Hostile files are refused at once and with a short message. The bound is generous: it tells a hang from a pause.
#[rstest]
#[case::ten_megabytes("x: y\n".repeat(2_000_000))]
#[case::one_line(format!("x: {}", "y".repeat(250_000)))]
#[case::many_keys((0..40_000).map(|i| format!("k{i}: \n")).collect::<Vec<_>>().concat())]
#[case::many_items(format!("x: [{}]", "a,".repeat(100_000)))]
#[case::deep_blocks((0..500).map(|i| format!("{}k:\n", " ".repeat(i))).collect::<Vec<_>>().concat())]
#[case::binary("\u{0}\u{1}\u{7f}".repeat(1000))]
#[case::merge_bomb(format!("a: &a {{x: y}}\n{}", (0..5000).map(|i| format!("k{i}: {{<<: *a}}\n")).collect::<Vec<_>>().concat()))]
#[case::one_word(MINIMAL.replace("core", &"y".repeat(250_000)))]
#[case::cases_by_steps(hostile_table())]
#[case::faults_without_end(MINIMAL.to_owned() + &"    - headrom: {}\n".repeat(4000))]
#[case::buffers_that_are_not_there(hostile_buffers())]
#[case::quadratic(format!("a: &a [{}]\nb: [{}]\n", "x,".repeat(5000), "*a,".repeat(150)))]
fn hostile_files_are_refused_at_once(#[case] text: String) {
    let start = Instant::now();
    let said = refusal(vec![("hostile.yaml".to_owned(), text)], Origin::User);
    assert!(said.starts_with("hostile.yaml:"), "{said}");
    assert!(said.len() < 20_000, "a short message, not {} bytes", said.len());
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}
