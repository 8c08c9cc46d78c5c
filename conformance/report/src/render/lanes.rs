//! Layout of the time line: what was seen becomes lanes of bars and marks on one axis. No text is written here.
//!
//! A scenario is bursts of activity between quiet minutes, so an axis to scale would show a few crowded pixels. Long
//! quiet gaps are cut out of the axis, visibly and with their length.

use std::collections::{BTreeMap, BTreeSet};

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
const BREAK: f64 = 46.0;
/// More rows than this in one group are drawn thin and without names.
const ROOMY: usize = 12;
/// More rows than this in one group are not drawn.
const MOST_ROWS: usize = 60;
/// More events than this are not drawn.
const MOST_EVENTS: usize = 2_000;
/// At most this many gaps are cut out, each at least that part of the whole.
const MOST_BREAKS: usize = 6;
const BREAK_PART: f64 = 0.08;

/// A drawing, ready to be written.
pub struct Drawing {
    pub height: f64,
    /// One sentence for those who do not see it.
    pub summary: String,
    pub ticks: Vec<(f64, String)>,
    pub breaks: Vec<Break>,
    pub steps: Vec<StepMark>,
    pub groups: Vec<Group>,
    /// What is not drawn, one sentence each.
    pub cut: Vec<String>,
}

/// Time that was cut out of the axis.
pub struct Break {
    pub from: f64,
    pub to: f64,
    pub label: String,
}

/// Steps that begin at (nearly) the same place.
pub struct StepMark {
    pub at: f64,
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

/// A time axis with gaps cut out.
struct Axis {
    /// `(from ms, to ms, from px, to px, cut out)`, without holes.
    pieces: Vec<(u64, u64, f64, f64, bool)>,
}

impl Axis {
    fn new(times: &BTreeSet<u64>) -> Self {
        let end = times.last().copied().unwrap_or(0).max(1);
        let mut points: Vec<u64> = times.iter().copied().collect();
        points.extend([0, end]);
        points.sort_unstable();
        points.dedup();
        let mut gaps: Vec<(u64, u64)> =
            points.windows(2).filter_map(|w| Some((*w.first()?, *w.get(1)?))).collect();
        gaps.sort_by_key(|(from, to)| (std::cmp::Reverse(to - from), *from));
        let mut cut: Vec<(u64, u64)> = gaps
            .into_iter()
            .take_while(|(from, to)| float(to - from) > float(end) * BREAK_PART)
            .take(MOST_BREAKS)
            .collect();
        // An axis to scale is easier to read, unless most of it would be empty.
        if float(cut.iter().map(|(from, to)| to - from).sum()) < float(end) * 0.5
            || cut.len() + 1 >= points.len()
        {
            cut.clear();
        }
        cut.sort_unstable();
        let lost: u64 = cut.iter().map(|(from, to)| to - from).sum();
        let breaks = cut.iter().fold(0.0, |sum, _| sum + BREAK);
        let scale = (RIGHT - LEFT - breaks) / float((end - lost).max(1));
        let mut pieces = Vec::new();
        let (mut ms, mut px) = (0, LEFT);
        for (from, to) in cut {
            let start = px + float(from - ms) * scale;
            pieces.push((ms, from, px, start, false));
            pieces.push((from, to, start, start + BREAK, true));
            (ms, px) = (to, start + BREAK);
        }
        pieces.push((ms, end, px, px + float(end - ms) * scale, false));
        Self { pieces }
    }

    fn at(&self, ms: u64) -> f64 {
        let piece = self.pieces.iter().find(|(_, to, ..)| ms <= *to).or(self.pieces.last());
        piece.map_or(LEFT, |(from, to, start, stop, _)| {
            let part = if to == from { 0.0 } else { float(ms.min(*to) - from) / float(to - from) };
            start + (stop - start) * part
        })
    }

    fn breaks(&self) -> Vec<Break> {
        let cut = self.pieces.iter().filter(|piece| piece.4);
        cut.map(|(from, to, start, stop, _)| Break {
            from: *start,
            to: *stop,
            label: words::seconds(to - from),
        })
        .collect()
    }

    /// Round times that have room for their names.
    fn ticks(&self) -> Vec<(f64, String)> {
        const ROOM: f64 = 60.0;
        let drawn = self.pieces.iter().filter(|piece| !piece.4);
        let longest = drawn.clone().max_by(|a, b| (a.3 - a.2).total_cmp(&(b.3 - b.2)));
        let scale =
            longest.map_or(1.0, |(from, to, start, stop, _)| (stop - start) / float((to - from).max(1)));
        let round = (0..9).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)));
        let step = round.into_iter().find(|step| float(*step) * scale >= ROOM).unwrap_or(u64::MAX);
        let mut ticks: Vec<(f64, String)> = Vec::new();
        for (from, to, ..) in drawn {
            let first = from.div_ceil(step).saturating_mul(step);
            let inside =
                std::iter::successors(Some(first), |ms| ms.checked_add(step)).take_while(|ms| ms <= to);
            for ms in inside {
                let at = self.at(ms);
                if ticks.last().is_none_or(|(last, _)| at - last >= ROOM) {
                    ticks.push((at, words::bound(ms)));
                }
            }
        }
        ticks
    }
}

/// Milliseconds as a coordinate; what a run lasts is far below the 2⁵³ that are exact.
#[allow(clippy::cast_precision_loss)]
fn float(ms: u64) -> f64 {
    ms as f64
}

/// A lane before it has a place.
struct Track {
    label: String,
    /// From, to (absent: to the end), class, height as a part of the row, tip, text.
    spans: Vec<Span>,
    moments: Vec<(u64, String)>,
}

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
        let axis = Axis::new(&times);
        let mut y = TOP;
        let mut groups = Vec::new();
        for (title, plural, tracks) in tracks(&seen) {
            let group = place(&title, &plural, tracks, &axis, &mut y, &mut cut);
            groups.push(group);
        }
        Some(Self {
            height: y + AXIS,
            summary: summary(result, &groups),
            ticks: axis.ticks(),
            breaks: axis.breaks(),
            steps: steps(result, &axis),
            groups,
            cut,
        })
    }

    pub fn width(&self) -> f64 {
        WIDTH
    }

    pub fn left(&self) -> f64 {
        LEFT
    }

    pub fn right(&self) -> f64 {
        RIGHT
    }

    /// Where the lanes end and the axis begins.
    pub fn bottom(&self) -> f64 {
        self.height - AXIS + 6.0
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
            Some("False") => ("warn", 0.7),
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
        let word = event.what.split_whitespace().next().unwrap_or_default();
        leaving |= matches!(word, "tainted" | "deleting");
        let state = match word {
            "deleted" => None,
            _ if leaving => Some(("leaving", 1.0)),
            "Ready=True" | "Initialized=True" | "Running" => Some(("good", 1.0)),
            "Ready=False" | "Ready=Unknown" => Some(("dim", 0.4)),
            _ => Some(track.spans.last().map_or(("dim", 0.4), |last| (last.class, last.part))),
        };
        track.moments.push((event.at_ms, event.what.clone()));
        let same =
            matches!((state, track.spans.last()), (Some((class, _)), Some(last)) if class == last.class);
        if same {
            continue;
        }
        if let Some(last) = track.spans.last_mut() {
            last.to.get_or_insert(event.at_ms);
        }
        if let Some((class, part)) = state {
            let (tip, text) = (event.what.clone(), String::new());
            track.spans.push(Span { from: event.at_ms, to: None, class, part, tip, text });
        }
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
    let end = axis.pieces.last().map_or(0, |piece| piece.1);
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
    const ROOM: f64 = 22.0;
    let mut marks: Vec<(usize, StepMark)> = Vec::new();
    for step in result.steps.iter().filter(|s| s.outcome != StepOutcome::NotReached) {
        let at = axis.at(step.started_ms);
        let failed = step.outcome == StepOutcome::Failed;
        let tip = format!("step {}: {}", step.number, step.title);
        match marks.last_mut() {
            Some((first, mark)) if at - mark.at < ROOM => {
                mark.label = format!("{first}–{}", step.number);
                mark.tip = format!("{}; {tip}", mark.tip);
                mark.failed |= failed;
            }
            _ => marks.push((step.number, StepMark { at, label: step.number.to_string(), tip, failed })),
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
