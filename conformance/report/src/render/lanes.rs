//! Layout of the time line: what was seen becomes lanes of bars and marks on one axis. The template only writes it down.

use std::collections::{BTreeMap, BTreeSet};

use super::axis::{Axis, Break};
use super::words::{self, Tone};
use crate::model::{Lane, ScenarioResult, StepOutcome, TimelineEvent};

/// Sizes in pixels of the drawing, before it is scaled to the page.
const WIDTH: f64 = 1000.0;
const LEFT: f64 = 176.0;
const RIGHT: f64 = WIDTH - 12.0;
const TOP: f64 = 30.0;
const ROW: f64 = 18.0;
const COMPACT_ROW: f64 = 6.0;
const HEADING: f64 = 22.0;
const AXIS: f64 = 42.0;
/// More rows than this in one group are drawn thin and without names.
const ROOMY: usize = 12;
/// More rows than this in one group are not drawn.
const MOST_ROWS: usize = 60;
/// More events than this are not drawn.
const MOST_EVENTS: usize = 2_000;

/// A drawing, ready to be written.
pub struct Drawing {
    pub width: f64,
    pub height: f64,
    /// Where the lanes begin, end, and meet the axis.
    pub left: f64,
    pub right: f64,
    pub bottom: f64,
    /// One sentence for those who do not see it.
    pub summary: String,
    pub ticks: Vec<(f64, String)>,
    pub breaks: Vec<Break>,
    pub steps: Vec<StepMark>,
    pub groups: Vec<Group>,
    /// What is not drawn, one sentence each.
    pub cut: Vec<String>,
}

/// Steps that begin at (nearly) the same place.
pub struct StepMark {
    pub at: f64,
    /// Width of its label.
    pub width: f64,
    pub label: String,
    pub tip: String,
    pub failed: bool,
}

/// Lanes of one kind.
pub struct Group {
    pub y: f64,
    pub title: String,
    pub rows: Vec<Row>,
}

/// One lane.
pub struct Row {
    pub y: f64,
    pub height: f64,
    /// Absent where rows are too thin for one.
    pub label: Option<String>,
    pub bars: Vec<Bar>,
    pub marks: Vec<Mark>,
}

/// A state that lasted.
pub struct Bar {
    pub from: f64,
    pub width: f64,
    pub y: f64,
    pub height: f64,
    pub class: &'static str,
    pub tip: String,
    /// What fits on the bar.
    pub text: Option<String>,
}

/// A moment.
pub struct Mark {
    pub at: f64,
    pub tip: String,
}

/// A lane before it has a place.
struct Track {
    label: String,
    spans: Vec<Span>,
    moments: Vec<(u64, String)>,
}

/// A state before it has a place: from when, to when (absent: to the end), as which part of the lane's height.
struct Span {
    from: u64,
    to: Option<u64>,
    class: &'static str,
    part: f64,
    tip: String,
    text: String,
}

impl Drawing {
    /// The time line of a result, unless nothing was seen.
    pub fn new(result: &ScenarioResult) -> Option<Self> {
        let seen: Vec<&TimelineEvent> =
            result.timeline.iter().filter(|e| e.lane != Lane::Step).take(MOST_EVENTS).collect();
        if seen.is_empty() {
            return None;
        }
        let mut cut = Vec::new();
        let all = result.timeline.iter().filter(|e| e.lane != Lane::Step).count();
        if all > seen.len() {
            cut.push(format!("{} later events are not drawn.", all - seen.len()));
        }
        let mut times: BTreeSet<u64> = seen.iter().map(|e| e.at_ms).collect();
        times.insert(result.duration_ms);
        for step in result.steps.iter().filter(|s| s.outcome != StepOutcome::NotReached) {
            times.extend([step.started_ms, step.started_ms.saturating_add(step.duration_ms)]);
        }
        let axis = Axis::new(&times, LEFT, RIGHT);
        let mut y = TOP;
        let mut groups = Vec::new();
        for (title, plural, tracks) in tracks(&seen) {
            let group = place(&title, &plural, tracks, &axis, &mut y, &mut cut);
            groups.push(group);
        }
        Some(Self {
            width: WIDTH,
            height: y + AXIS,
            left: LEFT,
            right: RIGHT,
            bottom: y + 6.0,
            summary: summary(result, &groups),
            ticks: axis.ticks(),
            breaks: axis.breaks(),
            steps: steps(result, &axis),
            groups,
            cut,
        })
    }
}

/// The lanes by group: title, what a row is, rows in the order of their first event.
fn tracks(seen: &[&TimelineEvent]) -> Vec<(String, String, Vec<Track>)> {
    let of = |lane: Lane| -> Vec<(&str, Vec<&TimelineEvent>)> {
        let mut objects: Vec<(&str, Vec<&TimelineEvent>)> = Vec::new();
        let mut index: BTreeMap<&str, usize> = BTreeMap::new();
        for event in seen.iter().filter(|e| e.lane == lane) {
            let at = *index.entry(&event.object).or_insert_with(|| {
                objects.push((&event.object, Vec::new()));
                objects.len() - 1
            });
            if let Some((_, events)) = objects.get_mut(at) {
                events.push(event);
            }
        }
        objects
    };
    let mut groups = Vec::new();
    for (buffer, events) in of(Lane::Buffer) {
        groups.push((format!("Buffer {buffer}"), "conditions".to_owned(), conditions(&events)));
    }
    for (lane, title) in [(Lane::Claim, "NodeClaims"), (Lane::Node, "Nodes"), (Lane::Pod, "Pods")] {
        let rows: Vec<Track> = of(lane).into_iter().map(|(name, events)| life(name, &events)).collect();
        groups.push((title.to_owned(), title.to_lowercase(), rows));
    }
    let rows = of(Lane::Event).into_iter().map(|(name, events)| Track {
        label: name.to_owned(),
        spans: vec![],
        moments: events.iter().map(|e| (e.at_ms, e.what.clone())).collect(),
    });
    groups.push(("Events".to_owned(), "objects with events".to_owned(), rows.collect()));
    groups.retain(|(.., rows)| !rows.is_empty());
    groups
}

/// A buffer: a lane for each condition and status field, and one for what else befell it.
fn conditions(events: &[&TimelineEvent]) -> Vec<Track> {
    let gone = events.iter().find(|e| e.what == "deleted").map(|e| e.at_ms);
    let mut object = Track { label: "object".to_owned(), spans: vec![], moments: vec![] };
    let mut tracks: Vec<Track> = Vec::new();
    for event in events {
        let Some((field, value)) = event.what.split_once('=') else {
            object.moments.push((event.at_ms, event.what.clone()));
            continue;
        };
        let index = tracks.iter().position(|t| t.label == field).unwrap_or_else(|| {
            tracks.push(Track { label: field.to_owned(), spans: vec![], moments: vec![] });
            tracks.len() - 1
        });
        let Some(track) = tracks.get_mut(index) else { continue };
        if let Some(last) = track.spans.last_mut() {
            last.to = Some(event.at_ms);
        }
        let (class, part) = match value.split_whitespace().next() {
            Some("True") => ("good", 1.0),
            Some("False") => ("warn", 0.85),
            Some("Unknown") => ("dim", 0.4),
            _ => ("info", 1.0),
        };
        track.spans.push(Span {
            from: event.at_ms,
            to: gone,
            class,
            part,
            tip: event.what.clone(),
            text: value.to_owned(),
        });
    }
    if !object.moments.is_empty() {
        if let Some((from, _)) = object.moments.first() {
            let text = String::new();
            let tip = "exists".to_owned();
            object.spans.push(Span { from: *from, to: gone, class: "dim", part: 0.25, tip, text });
        }
        tracks.insert(0, object);
    }
    tracks
}

/// A claim, node or pod: thin until it is of use, full while it is, hatched while it leaves.
fn life(name: &str, events: &[&TimelineEvent]) -> Track {
    let mut track = Track { label: name.to_owned(), spans: vec![], moments: vec![] };
    let mut leaving = false;
    for event in events {
        track.moments.push((event.at_ms, event.what.clone()));
        let word = event.what.split_whitespace().next().unwrap_or_default();
        let current = track.spans.last_mut().filter(|span| span.to.is_none());
        if word == "deleted" {
            leaving = false;
            if let Some(span) = current {
                span.to = Some(event.at_ms);
            }
            continue;
        }
        leaving |= matches!(word, "tainted" | "deleting");
        let (class, part) = match word {
            _ if leaving => ("leaving", 1.0),
            "Ready=True" | "Initialized=True" | "Running" => ("good", 1.0),
            "Ready=False" | "Ready=Unknown" => ("dim", 0.4),
            _ => current.as_ref().map_or(("dim", 0.4), |span| (span.class, span.part)),
        };
        match current {
            Some(span) if span.class == class => continue,
            Some(span) => span.to = Some(event.at_ms),
            None => {}
        }
        let (tip, text) = (event.what.clone(), String::new());
        track.spans.push(Span { from: event.at_ms, to: None, class, part, tip, text });
    }
    track
}

/// Gives the rows of a group their places, thin ones if there are many.
fn place(
    title: &str,
    plural: &str,
    mut tracks: Vec<Track>,
    axis: &Axis,
    y: &mut f64,
    cut: &mut Vec<String>,
) -> Group {
    let all = tracks.len();
    if all > MOST_ROWS {
        cut.push(format!("{} of {all} {plural} are not drawn.", all - MOST_ROWS));
        tracks.truncate(MOST_ROWS);
    }
    let roomy = all <= ROOMY;
    let pitch = if roomy { ROW } else { COMPACT_ROW };
    let top = *y;
    *y += HEADING;
    let end = axis.end();
    let rows = tracks
        .into_iter()
        .map(|track| {
            let full = if roomy { pitch - 6.0 } else { pitch - 2.0 };
            let bars = track.spans.iter().map(|span| {
                let (from, to) = (axis.at(span.from), axis.at(span.to.unwrap_or(end)));
                let height = full * span.part;
                let width = (to - from).max(1.0);
                let name = if roomy { String::new() } else { format!("{}: ", track.label) };
                Bar {
                    from,
                    width,
                    y: *y + (full - height) / 2.0,
                    height,
                    class: span.class,
                    tip: format!("{name}{} from {}", span.tip, words::seconds(span.from)),
                    text: fitting(&span.text, width).filter(|_| roomy),
                }
            });
            let bars = bars.collect();
            let marks = track.moments.iter().filter(|_| roomy);
            let marks = marks
                .map(|(ms, what)| Mark {
                    at: axis.at(*ms),
                    tip: format!("{what} at {}", words::seconds(*ms)),
                })
                .collect();
            let row =
                Row { y: *y, height: full, label: roomy.then(|| shortened(&track.label, 26)), bars, marks };
            *y += pitch;
            row
        })
        .collect();
    let title = if plural == "conditions" { title.to_owned() } else { format!("{title} ({all})") };
    Group { y: top, title, rows }
}

/// The steps on the axis; those too near to each other share a number.
fn steps(result: &ScenarioResult, axis: &Axis) -> Vec<StepMark> {
    const ROOM: f64 = 26.0;
    let mut marks: Vec<(usize, StepMark)> = Vec::new();
    for step in result.steps.iter().filter(|s| s.outcome != StepOutcome::NotReached) {
        let at = axis.at(step.started_ms);
        let failed = words::failed(step, result);
        let tip = format!("step {}: {}", step.number, step.title);
        match marks.last_mut() {
            Some((first, mark)) if at - mark.at < ROOM => {
                mark.label = format!("{first}–{}", step.number);
                mark.width = 30.0;
                mark.tip = format!("{}; {tip}", mark.tip);
                if failed {
                    (mark.at, mark.failed) = (at, true);
                }
            }
            _ => marks.push((
                step.number,
                StepMark { at, width: 20.0, label: step.number.to_string(), tip, failed },
            )),
        }
    }
    marks.into_iter().map(|(_, mark)| mark).collect()
}

/// What the drawing shows, for those who do not see it.
fn summary(result: &ScenarioResult, groups: &[Group]) -> String {
    let groups: Vec<String> = groups.iter().map(|g| g.title.clone()).collect();
    let look = words::outcome(result.outcome);
    let what = if look.tone == Tone::Good { "passed" } else { look.word };
    format!(
        "{} of {} that {what} after {}: {}. The same as text is in the table of events below.",
        words::count(result.steps.len(), "step"),
        result.id,
        words::seconds(result.duration_ms),
        groups.join(", ")
    )
}

/// As much of a text as fits on a bar: all, its first word, or nothing.
fn fitting(text: &str, width: f64) -> Option<String> {
    const CHARACTER: f64 = 6.2;
    let fits = |text: &&str| !text.is_empty() && text.chars().fold(8.0, |sum, _| sum + CHARACTER) <= width;
    let first = text.split_whitespace().next().unwrap_or_default();
    [text, first].into_iter().find(fits).map(str::to_owned)
}

/// A name with its middle left out if it is too long: names differ at their ends.
fn shortened(name: &str, most: usize) -> String {
    let length = name.chars().count();
    if length <= most {
        return name.to_owned();
    }
    let head: String = name.chars().take(most / 2 - 1).collect();
    let tail: String = name.chars().skip(length - most / 2).collect();
    format!("{head}…{tail}")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::model::Outcome;
    use crate::samples::scenario;

    fn seen(at_ms: u64, lane: Lane, object: &str, what: &str) -> TimelineEvent {
        TimelineEvent { at_ms, lane, object: object.into(), what: what.into() }
    }

    fn drawn(timeline: Vec<TimelineEvent>) -> Drawing {
        let result =
            ScenarioResult { timeline, duration_ms: 1_000, ..scenario("CB-ACT-001", Outcome::Passed) };
        Drawing::new(&result).unwrap()
    }

    fn bars(row: &Row) -> Vec<(&str, &str)> {
        row.bars.iter().map(|b| (b.class, b.tip.as_str())).collect()
    }

    #[test]
    fn nothing_seen_is_no_drawing() {
        let mut result = scenario("CB-ACT-001", Outcome::Passed);
        assert!(Drawing::new(&result).is_none());
        result.timeline = vec![seen(3, Lane::Step, "1", "apply")];
        assert!(Drawing::new(&result).is_none());
    }

    #[test]
    fn each_condition_is_a_lane_whose_bars_end_where_the_next_begins() {
        let drawing = drawn(vec![
            seen(10, Lane::Buffer, "web", "created"),
            seen(20, Lane::Buffer, "web", "Provisioning=False RequiresNewCapacity"),
            seen(30, Lane::Buffer, "web", "replicas=3"),
            seen(700, Lane::Buffer, "web", "Provisioning=True FitsExistingCapacity"),
            seen(900, Lane::Buffer, "web", "deleted"),
        ]);
        let group = &drawing.groups[0];
        let labels: Vec<_> = group.rows.iter().map(|r| r.label.clone().unwrap()).collect();
        assert_eq!(labels, ["object", "Provisioning", "replicas"]);
        let provisioning = &group.rows[1];
        assert_eq!(
            bars(provisioning),
            [
                ("warn", "Provisioning=False RequiresNewCapacity from 0.020 s"),
                ("good", "Provisioning=True FitsExistingCapacity from 0.70 s"),
            ]
        );
        let ends: Vec<f64> = provisioning.bars.iter().map(|b| b.from + b.width).collect();
        assert!((ends[0] - provisioning.bars[1].from).abs() < 0.01);
        assert!(ends[1] < RIGHT, "a deleted buffer has no condition");
        assert_eq!(provisioning.bars[0].text.as_deref(), Some("False RequiresNewCapacity"));
        assert_eq!(bars(&group.rows[2]), [("info", "replicas=3 from 0.030 s")]);
    }

    #[rstest]
    #[case::claim(
        Lane::Claim,
        &["created", "Launched=True", "Registered=True", "Initialized=True", "deleting", "deleted"],
        &["dim", "good", "leaving"]
    )]
    #[case::node_that_comes_and_goes(
        Lane::Node,
        &["created", "Ready=True KubeletReady", "Ready=Unknown NodeStatusUnknown", "Ready=True KubeletReady"],
        &["dim", "good", "dim", "good"]
    )]
    #[case::leaving_is_for_good(Lane::Node, &["Ready=True", "tainted", "Ready=True", "deleted"], &["good", "leaving"])]
    #[case::born_again_under_its_name(Lane::Node, &["Ready=True", "deleted", "created"], &["good", "dim"])]
    #[case::pod(Lane::Pod, &["created", "bound", "Running", "deleting", "deleted"], &["dim", "good", "leaving"])]
    fn lives(#[case] lane: Lane, #[case] events: &[&str], #[case] expected: &[&str]) {
        let timeline =
            events.iter().zip(0..).map(|(what, i)| seen(i * 100, lane, "one", what)).collect::<Vec<_>>();
        let drawing = drawn(timeline);
        let row = &drawing.groups[0].rows[0];
        let classes: Vec<_> = row.bars.iter().map(|b| b.class).collect();
        assert_eq!(classes, expected);
        assert_eq!(row.marks.len(), events.len());
        let gone = events.last() == Some(&"deleted");
        let last = row.bars.last().unwrap();
        assert_eq!(last.from + last.width < RIGHT - 0.01, gone);
    }

    #[rstest]
    #[case(3, true, 3, &[])]
    #[case(30, false, 30, &[])]
    #[case(100, false, 60, &["40 of 100 nodes are not drawn."])]
    fn many_nodes(#[case] n: usize, #[case] named: bool, #[case] rows: usize, #[case] cut: &[&str]) {
        let timeline = (0..n).map(|i| seen(5, Lane::Node, &format!("node-{i}"), "created")).collect();
        let drawing = drawn(timeline);
        assert_eq!(drawing.groups[0].title, format!("Nodes ({n})"));
        assert_eq!(drawing.groups[0].rows.len(), rows);
        assert!(drawing.groups[0].rows.iter().all(|r| r.label.is_some() == named));
        assert_eq!(drawing.cut, cut);
        assert!(drawing.height < 500.0);
    }

    #[test]
    fn more_events_than_can_be_drawn_are_counted() {
        let timeline = (0..2_500).map(|i| seen(i, Lane::Node, "one", "Ready=True")).collect();
        assert_eq!(drawn(timeline).cut, ["500 later events are not drawn."]);
    }

    #[test]
    fn steps_that_begin_together_share_a_number() {
        let mut result = scenario("CB-ACT-001", Outcome::Nonconformant);
        result.duration_ms = 1_000;
        result.timeline = (0..20).map(|i| seen(i * 50, Lane::Node, "one", "created")).collect();
        let step = result.steps.remove(0);
        for (number, started_ms) in [(1, 0), (2, 4), (3, 8), (4, 600)] {
            result.steps.push(crate::model::StepResult { number, started_ms, ..step.clone() });
        }
        let labels: Vec<_> = Drawing::new(&result).unwrap().steps.into_iter().map(|s| s.label).collect();
        assert_eq!(labels, ["1–3", "4"]);
    }

    #[rstest]
    #[case("short", "short")]
    #[case("a-name-that-is-much-too-long-0042", "a-name-that-…too-long-0042")]
    fn names(#[case] name: &str, #[case] expected: &str) {
        assert_eq!(shortened(name, 26), expected);
    }
}
