//! A run that is cut short leaves nothing: no process, no folder, and a report where there is somebody left to write it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod support;

use std::{
    os::unix::process::CommandExt,
    process::{Child, Command},
};

use conformance_report::model::{IncidentKind, Outcome, Report};
use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use support::{World, eventually, workspace};

/// A scenario whose middle lasts a minute: so long nodes must not move.
const LONG: &str = "survives-consolidation";
/// One that comes after it.
const LATER: &str = "clean-up";

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// A run on one plane, one scenario at a time, the first of them long.
fn run(world: &World, more: &[&str]) -> Child {
    let first = ["run", LONG, LATER, "--planes", "1", "--jobs", "1", "--out", "out"];
    world.start(world.bufconf(first.iter().chain(more)))
}

/// Waits until a scenario is in its middle on some plane: its buffer has a status.
fn middle(world: &World) {
    eventually("the middle of the scenario", || {
        let runs = world.folders("runs");
        let planes = runs.iter().filter_map(|run| run.join("planes").read_dir().ok()).flatten();
        let status = |line: &str| {
            line.contains("\"resource\":\"capacitybuffers\"") && line.contains("\"subresource\":\"status\"")
        };
        let mut logs =
            planes.filter_map(|plane| std::fs::read_to_string(plane.ok()?.path().join("audit.log")).ok());
        logs.any(|log| log.lines().any(status)).then_some(())
    });
}

fn outcome(report: &Report, name: &str) -> Outcome {
    report.results.iter().find(|result| result.name == name).unwrap().outcome
}

/// The run wrote what it knew: `LONG` was cut off, `LATER` never began.
fn expect_cut_short(world: &World, kind: IncidentKind, code: u8) {
    let report = world.report("out");
    assert_eq!(report.exit_code, code);
    assert_eq!(report.incidents.iter().map(|incident| incident.kind).collect::<Vec<_>>(), [kind]);
    assert_eq!(outcome(&report, LONG), Outcome::Unknown);
    assert_eq!(outcome(&report, LATER), Outcome::NotRun);
    assert_eq!(outcome(&report, "zero-node-baseline"), Outcome::Excluded);
}

#[test]
fn an_interrupted_run_reports_and_leaves_nothing() {
    let world = World::new();
    let mut child = run(&world, &[]);
    middle(&world);
    kill_process(pid(&child), Signal::INT).unwrap();
    assert_eq!(world.ended(&mut child), Some(130), "{}", world.log());
    expect_cut_short(&world, IncidentKind::Interrupted, 130);
    world.expect_no_process();
    assert!(world.folders("runs").is_empty(), "{:?}", world.folders("runs"));
}

#[test]
fn a_deadline_reports_and_leaves_nothing() {
    let world = World::new();
    // Far less than the scenario lasts, far more than a plane takes to start.
    let mut child = run(&world, &["--deadline", "45s"]);
    middle(&world);
    assert_eq!(world.ended(&mut child), Some(124), "{}", world.log());
    expect_cut_short(&world, IncidentKind::Deadline, 124);
    world.expect_no_process();
    assert!(world.folders("runs").is_empty(), "{:?}", world.folders("runs"));
}

#[test]
fn a_killed_run_leaves_nothing() {
    let world = World::new();
    let mut child = run(&world, &[]);
    middle(&world);
    kill_process(pid(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    world.expect_no_process();
    // The supervisor was the last one out.
    assert!(world.folders("runs").is_empty(), "{:?}", world.folders("runs"));
}

#[test]
fn a_killed_supervisor_is_no_violation() {
    let world = World::new();
    let mut child = run(&world, &[]);
    middle(&world);
    let supervisor = world.process("the supervisor", support::Process::is_supervisor);
    supervisor.kill(Signal::KILL);
    let code = world.ended(&mut child);
    assert_eq!(code, Some(3), "incomplete: {}", world.log());
    let report = world.report("out");
    let lost = report.results.iter().find(|result| result.name == LONG).unwrap();
    assert_eq!(lost.outcome, Outcome::Unknown);
    assert!(lost.reason.as_ref().unwrap().contains("supervisor"), "{:?}", lost.reason);
    // It had a new plane.
    assert_eq!(outcome(&report, LATER), Outcome::Passed);
    world.expect_no_process();
    assert!(world.folders("runs").is_empty(), "{:?}", world.folders("runs"));
}

/// A run of the workspace's own scenario tests: built already when a run of the whole workspace has come to this test,
/// and only the one binary, so that nothing else is built for it.
fn nextest(world: &World) -> Command {
    let mut command = world.command("cargo");
    let filter = format!("binary(scenarios) & test({LONG})");
    command
        .args(["nextest", "run", "--workspace", "--test", "scenarios", "--offline", "-E", &filter])
        .current_dir(workspace())
        .env("BUFCONF_OUT", world.path("out"))
        // As a terminal does, so that Ctrl-C reaches all of it and nothing else.
        .process_group(0);
    command
}

#[rstest]
#[case::killed(Signal::KILL)]
#[case::interrupted(Signal::INT)]
fn an_ended_nextest_leaves_nothing(#[case] signal: Signal) {
    let world = World::new();
    let mut child = world.start(nextest(&world));
    middle(&world);
    if signal == Signal::INT {
        kill_process_group(pid(&child), signal).unwrap();
    } else {
        // Nothing else is killed: all the others have to see it themselves.
        kill_process(pid(&child), signal).unwrap();
    }
    child.wait().unwrap();
    world.expect_no_process();
    // The last one out, the plane's supervisor, has written it.
    assert_eq!(outcome(&world.report("out"), LONG), Outcome::NotRun);
    assert!(world.folders("runs").is_empty(), "{:?}", world.folders("runs"));
}
