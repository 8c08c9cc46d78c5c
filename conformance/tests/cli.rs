//! What the command line does with bad input, and what works without a cluster.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests; clippy exempts only test functions"
)]

mod support;

use std::{
    fs,
    net::TcpListener,
    path::Path,
    time::{Duration, Instant},
};

use bufconf::cli::Cli;
use clap::CommandFactory;
use conformance_report::{
    merge,
    model::{Environment, Implementation, IncidentKind, Outcome, Scope, Suite},
};
use rstest::rstest;
use serde_json::{Value, json};

use support::{Said, World, workspace};

/// No answer of the command line takes longer than this.
const PROMPT: Duration = Duration::from_secs(20);

fn bufconf(world: &World, arguments: &[&str]) -> Said {
    let start = Instant::now();
    let said = world.bufconf(arguments).output().unwrap().into();
    assert!(start.elapsed() < PROMPT, "{arguments:?} took {:?}", start.elapsed());
    said
}

fn broken(name: &str) -> Vec<u8> {
    fs::read(workspace().join("scenarios/broken").join(name)).unwrap()
}

#[rstest]
#[case::scenario(&["zero-node-basline"], "unknown scenario `zero-node-basline`, did you mean `zero-node-baseline`?")]
#[case::id(&["CB-ACT-01"], "unknown scenario `CB-ACT-01`, did you mean `CB-ACT-0")]
#[case::implementation(&["--implementation", "none.yaml"], "reading the implementation file none.yaml")]
#[case::scenarios_dir(&["--scenarios-dir", "none"], "none: No such file")]
#[case::wait(&["--wait", "provison=3s"], "unknown wait `provison`, did you mean `provision`?")]
#[case::wait_form(&["--wait", "provision"], "provision")]
#[case::wait_length(&["--wait", "provision=soon"], "soon")]
#[case::time_factor(&["--time-factor", "0"], "time factor")]
#[case::time_factor_nan(&["--time-factor", "NaN"], "time factor")]
#[case::planes(&["--planes", "0"], "--planes must be at least 1")]
#[case::jobs(&["--jobs", "0"], "--jobs")]
#[case::deadline(&["--deadline", "soon"], "--deadline")]
#[case::kubernetes(&["--kubernetes", "1.7"], "Kubernetes 1.7 is not supported, only 1.3")]
#[case::cluster(&["--cluster", "exisiting"], "a similar value exists: 'existing'")]
#[case::flag(&["--scenario-dir", "x"], "--scenarios-dir")]
#[case::out_is_a_file(&["--out", "/dev/null/report"], "/dev/null/report")]
#[case::kubeconfig(&["--cluster", "existing", "--implementation", "reference", "--kubeconfig", "none"], "none")]
#[case::nobody_to_judge(&["--cluster", "existing"], "--cluster existing needs --implementation FILE")]
fn wrong_arguments_of_run_are_told(#[case] arguments: &[&str], #[case] message: &str) {
    let world = World::new();
    let said = bufconf(&world, &[&["run"], arguments].concat()).expect(2);
    assert!(said.stderr.contains(message), "{}", said.stderr);
    assert!(world.folders("runs").is_empty() && world.folders("clusters").is_empty());
}

#[rstest]
#[case::key("unknown-key", "8:3: unknown key `profile`, did you mean `profiles`?")]
#[case::verb("unknown-verb", "18:7: unknown verb `headrom`, did you mean `headroom`?")]
#[case::feature(
    "unknown-feature",
    "19:36: unknown feature `StrategyIsolaton`, did you mean `StrategyIsolation`?"
)]
#[case::wait("unknown-wait", "18:48: unknown wait `provison`, did you mean `provision`?")]
#[case::alias_bomb("alias-bomb", "")]
#[case::too_deep("too-deep", "")]
#[case::not_yaml("not-yaml", "")]
fn a_wrong_scenario_is_told_with_its_place(#[case] name: &str, #[case] message: &str) {
    let world = World::new();
    world.file(&format!("own/{name}.yaml"), broken(&format!("{name}.yaml")));
    let place = format!("own/{name}.yaml:{message}");
    for arguments in
        [&["run", "--scenarios-dir", "own"][..], &["list", "--scenarios-dir", "own"], &["lint", "own"]]
    {
        let said = bufconf(&world, arguments).expect(2);
        assert!(said.stderr.contains(&place), "{arguments:?}: {}", said.stderr);
        assert!(said.stdout.is_empty(), "{arguments:?}: {}", said.stdout);
    }
}

#[test]
fn a_scenario_that_is_no_text_is_told() {
    let world = World::new();
    world.file("own/binary.yaml", [0xff, 0xfe, 0, 1, 2, 0x80]);
    let said = bufconf(&world, &["lint", "own"]).expect(2);
    assert!(said.stderr.contains("own/binary.yaml"), "{}", said.stderr);
}

#[rstest]
#[case::one_line("x".repeat(10 << 20))]
#[case::many_keys((0..700_000).flat_map(|number| ["key".to_owned(), number.to_string(), ": [a]\n".to_owned()]).collect())]
#[case::nested("[".repeat(10 << 20))]
#[case::in_a_text(format!("{}  description: {}\n", String::from_utf8(broken("no-steps.yaml")).unwrap(), "y".repeat(10 << 20)))]
fn a_scenario_of_ten_megabytes_is_refused_at_once(#[case] text: String) {
    let world = World::new();
    world.file("own/huge.yaml", text);
    let said = bufconf(&world, &["lint", "own"]).expect(2);
    assert!(said.stderr.contains("own/huge.yaml"), "{}", &said.stderr[..said.stderr.len().min(1000)]);
    assert!(said.stderr.len() < 10_000, "a flood of {} bytes", said.stderr.len());
}

#[test]
fn the_names_of_the_suite_are_taken() {
    let world = World::new();
    let copy = fs::read(workspace().join("scenarios/active/zero-node-baseline.yaml")).unwrap();
    world.file("own/zero-node-baseline.yaml", copy);
    let said = bufconf(&world, &["list", "--scenarios-dir", "own"]).expect(2);
    assert!(said.stderr.contains("ids that begin with CB- are the suite's own"), "{}", said.stderr);
}

#[rstest]
#[case::key("parallelSafe", "paralelSafe", "did you mean `parallelSafe`?")]
#[case::feature("ServedV1alpha1", "ServedV1alpha", "did you mean `ServedV1alpha1`?")]
#[case::dialect("dialect: karpenter", "dialect: karpentr", "did you mean `karpenter`?")]
fn a_wrong_implementation_is_told_with_its_place(
    #[case] right: &str,
    #[case] wrong: &str,
    #[case] message: &str,
) {
    let world = World::new();
    let text = fs::read_to_string(workspace().join("ci/implementations/reference.yaml")).unwrap();
    let line = text.lines().position(|line| line.contains(right)).unwrap() + 1;
    world.file("mine.yaml", text.replacen(right, wrong, 1));
    for verb in ["run", "list"] {
        let said = bufconf(&world, &[verb, "--implementation", "mine.yaml"]).expect(2);
        assert!(said.stderr.contains(&format!("mine.yaml:{line}:")), "{}", said.stderr);
        assert!(said.stderr.contains(message), "{}", said.stderr);
    }
}

#[test]
fn nothing_to_do_is_not_success() {
    let world = World::new();
    fs::create_dir(world.path("empty")).unwrap();
    bufconf(&world, &["lint", "empty"]).expect(4);
    // It claims nothing that the scenario tests.
    let text = fs::read_to_string(workspace().join("ci/implementations/reference.yaml")).unwrap();
    let claims = text.lines().find(|line| line.starts_with("profiles: ")).unwrap();
    world.file("mine.yaml", text.replacen(claims, "profiles: [BUFFER-API]", 1));
    let said = bufconf(&world, &["run", "zero-node-baseline", "--implementation", "mine.yaml"]).expect(4);
    assert!(said.stderr.contains("no scenario was selected that can run here"), "{}", said.stderr);
}

/// The kubeconfig of a server at this port of loopback.
fn kubeconfig(world: &World, port: u16) {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": format!("https://127.0.0.1:{port}")}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
        "current-context": "c",
    });
    world.file("kubeconfig", config.to_string());
}

const EXISTING: [&str; 10] = [
    "run",
    "zero-node-baseline",
    "--cluster",
    "existing",
    "--implementation",
    "reference",
    "--kubeconfig",
    "kubeconfig",
    "--out",
    "out",
];

#[test]
fn a_cluster_that_does_not_answer_is_reported() {
    let world = World::new();
    // It was free a moment ago, and the system does not give it out again so soon.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    kubeconfig(&world, port);
    let said = bufconf(&world, &EXISTING).expect(5);
    assert!(said.stderr.contains(&format!("the cluster at https://127.0.0.1:{port}")), "{}", said.stderr);
    let report = world.report("out");
    assert_eq!(report.exit_code, 5);
    assert_eq!(report.incidents[0].kind, IncidentKind::Environment);
    let result = report.results.iter().find(|result| result.name == "zero-node-baseline").unwrap();
    assert_eq!(result.outcome, Outcome::NotRun);
    assert!(world.folders("runs").is_empty(), "{:?}", world.folders("runs"));
}

#[test]
fn a_kubeconfig_that_makes_no_sense_is_told() {
    let world = World::new();
    for text in ["apiVersion: [", "{}", "apiVersion: v1\nkind: Config\ncurrent-context: nowhere\n"] {
        world.file("kubeconfig", text);
        let said = bufconf(&world, &EXISTING).expect(2);
        assert!(said.stderr.contains("kubeconfig"), "{}", said.stderr);
        assert!(world.folders("runs").is_empty(), "{:?}", world.folders("runs"));
    }
}

#[test]
fn each_verb_has_help_with_an_example() {
    let mut command = Cli::command();
    command.build();
    let mut todo: Vec<(Vec<String>, &clap::Command)> = vec![(Vec::new(), &command)];
    let world = World::new();
    let mut verbs = 0;
    while let Some((path, command)) = todo.pop() {
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
            todo.push(([path.clone(), vec![sub.get_name().to_owned()]].concat(), sub));
        }
        if command.has_subcommands() {
            continue;
        }
        verbs += 1;
        let mut arguments: Vec<&str> = path.iter().map(String::as_str).collect();
        let verb = format!("bufconf {}", arguments.join(" "));
        arguments.push("--help");
        let help = bufconf(&world, &arguments).expect(0).stdout;
        let (_, example) =
            help.split_once("Example").unwrap_or_else(|| panic!("{verb}: no example:\n{help}"));
        assert!(example.contains(&verb), "{verb}: the example is of something else:\n{help}");
    }
    // run, list, lint, schema, doctor, controller, cloud, four of cluster, five of report
    assert_eq!(verbs, 16);
}

#[test]
fn the_list_is_for_people_and_for_programs() {
    let world = World::new();
    let table = bufconf(&world, &["list"]).expect(0).stdout;
    let line = table.lines().find(|line| line.contains("CB-ACT-001")).unwrap();
    for word in ["zero-node-baseline", "core", "quiet", "yes"] {
        assert!(line.contains(word), "{line}");
    }
    let list: Vec<Value> =
        serde_json::from_str(&bufconf(&world, &["list", "--format", "json"]).expect(0).stdout).unwrap();
    assert_eq!(list.len(), table.lines().count() - 1, "the same scenarios, without the head");
    let one = list.iter().find(|scenario| scenario["id"] == "CB-ACT-001").unwrap();
    assert_eq!(one["file"], "active/zero-node-baseline.yaml");
    assert_eq!(one["profiles"], json!(["BUFFER-ACTIVE"]));
    let files = list.iter().map(|scenario| scenario["file"].as_str().unwrap());
    assert!(files.into_iter().all(|file| workspace().join("scenarios").join(file).is_file()));
}

#[test]
fn a_dry_run_runs_nothing() {
    let world = World::new();
    let said = bufconf(&world, &["run", "clean-up", "CB-ACT-001", "--dry-run"]).expect(0);
    let wanted = "\
CB-ACT-001 zero-node-baseline (active/zero-node-baseline.yaml)
CB-RET-002 clean-up (retain/clean-up.yaml)
";
    assert_eq!(said.stdout, wanted);
    assert!(world.folders("runs").is_empty());
    assert!(!Path::new(&world.path("target")).exists());
}

#[rstest]
#[case("scenario")]
#[case("implementation")]
#[case("report")]
fn the_schemas_are_those_in_the_repository(#[case] kind: &str) {
    let said = bufconf(&World::new(), &["schema", kind]).expect(0);
    let file = workspace().join("scenarios/schema").join(kind).with_extension("json");
    similar_asserts::assert_eq!(said.stdout, fs::read_to_string(file).unwrap());
}

#[test]
fn the_scenarios_of_the_suite_are_sound() {
    let world = World::new();
    let folder = workspace().join("scenarios").display().to_string();
    let said = bufconf(&world, &["lint", &folder]).expect(0);
    let listed = bufconf(&world, &["list"]).expect(0).stdout.lines().count() - 1;
    assert_eq!(said.stdout, format!("{listed} scenarios, no findings\n"));
}

/// A report without entries, as a run leaves it that ended before the first scenario.
fn empty_report(cluster: &str) -> Value {
    let header = merge::Header {
        run_id: "run-1".to_owned(),
        started_at: "2026-01-01T00:00:00Z".to_owned(),
        finished_at: "2026-01-01T00:00:01Z".to_owned(),
        scope: Scope::Selection,
        suite: Suite { name: "bufconf".to_owned(), version: "1".to_owned(), catalogue_hash: String::new() },
        implementation: Implementation {
            organization: "o".to_owned(),
            project: "p".to_owned(),
            url: "u".to_owned(),
            version: "1".to_owned(),
            dialect: None,
            profiles: Vec::new(),
            features: Vec::new(),
        },
        environment: Environment {
            cluster: cluster.to_owned(),
            kubernetes_version: "v1.36.3".to_owned(),
            planes: 1,
            cpus: 1,
        },
        waits: Vec::new(),
        leaks: Vec::new(),
        incidents: Vec::new(),
    };
    serde_json::from_str(&merge::merge(header, Vec::new(), Vec::new()).to_json().unwrap()).unwrap()
}

#[test]
fn reports_are_rendered_verified_joined_and_compared() {
    let world = World::new();
    let write = |name: &str, report: &Value| {
        fs::write(world.path(name), serde_json::to_string_pretty(report).unwrap()).unwrap();
        world.path(name).display().to_string()
    };
    let good = empty_report("embedded");
    let (one, two) = (write("one.json", &good), write("two.json", &good));
    let out = world.path("out").display().to_string();
    for (arguments, code, says) in [
        (vec!["validate", &one, &two], 0, "2 reports of the published format"),
        (vec!["verify", &one], 0, "1 report that agree"),
        (vec!["render", &one, "--out", &out], 0, "index.html"),
        (vec!["merge", &one, &two, "--out", &out], 4, "nothing ran"),
        (vec!["diff", &one, &two], 0, "no difference, and no violation"),
    ] {
        let said = bufconf(&world, &[&["report"], &arguments[..]].concat());
        assert_eq!(said.code, Some(code), "{arguments:?}: {said:?}");
        assert!(said.stdout.contains(says), "{arguments:?}: {said:?}");
    }
    let mut doctored = good.clone();
    doctored["exitCode"] = json!(0);
    let mut unknown = good.clone();
    unknown["exitkode"] = json!(0);
    let other = write("other.json", &empty_report("kind"));
    for (arguments, code, says) in [
        (vec!["verify", &*write("doctored.json", &doctored)], 6, "exit code"),
        (vec!["merge", &*write("doctored.json", &doctored), "--out", &out], 6, "exit code"),
        (vec!["validate", &*write("unknown.json", &unknown)], 6, "unknown field `exitkode`"),
        (vec!["merge", &one, &other, "--out", &out], 6, "differ in their cluster"),
        (vec!["verify", "none.json"], 2, "none.json"),
    ] {
        let said = bufconf(&world, &[&["report"], &arguments[..]].concat());
        assert_eq!(said.code, Some(code), "{arguments:?}: {said:?}");
        assert!(said.stderr.contains(says), "{arguments:?}: {said:?}");
    }
}
