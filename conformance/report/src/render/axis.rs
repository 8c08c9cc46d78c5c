//! The time axis.
//!
//! A scenario is bursts of activity between quiet minutes, so an axis to scale would show a few crowded pixels. Long
//! quiet gaps are cut out of the axis, visibly and with their length.

use std::collections::BTreeSet;

use super::words;

/// Width of a gap that is cut out, in pixels.
const BREAK: f64 = 46.0;
/// At most this many gaps are cut out, each at least that part of the whole.
const MOST_BREAKS: usize = 6;
const BREAK_PART: f64 = 0.08;
/// Room for the name of a tick, in pixels.
const TICK_ROOM: f64 = 60.0;

/// A time axis with gaps cut out.
pub struct Axis {
    /// Without holes, from 0 to the end.
    pieces: Vec<Piece>,
}

/// A part of the axis on one scale.
struct Piece {
    from_ms: u64,
    to_ms: u64,
    from: f64,
    to: f64,
    cut_out: bool,
}

/// Time that was cut out of the axis.
pub struct Break {
    pub from: f64,
    pub to: f64,
    pub label: String,
}

impl Axis {
    /// An axis from `left` to `right` on which something happens at these times.
    pub fn new(times: &BTreeSet<u64>, left: f64, right: f64) -> Self {
        let end = times.last().copied().unwrap_or(0).max(1);
        let points: BTreeSet<u64> = times.iter().copied().chain([0, end]).collect();
        let mut cut: Vec<(u64, u64)> = points.iter().copied().zip(points.iter().copied().skip(1)).collect();
        cut.retain(|(from, to)| float(to - from) > float(end) * BREAK_PART);
        cut.sort_by_key(|(from, to)| (std::cmp::Reverse(to - from), *from));
        cut.truncate(MOST_BREAKS);
        let mut lost: u64 = cut.iter().map(|(from, to)| to - from).sum();
        // An axis to scale is easier to read, unless most of it would be empty.
        if float(lost) < float(end) * 0.5 || lost == end {
            cut.clear();
            lost = 0;
        }
        cut.sort_unstable();
        let breaks = cut.iter().fold(0.0, |sum, _| sum + BREAK);
        let scale = (right - left - breaks) / float(end - lost);
        let mut pieces = Vec::new();
        let (mut from_ms, mut from) = (0, left);
        for (quiet, busy) in cut {
            let to = from + float(quiet - from_ms) * scale;
            pieces.push(Piece { from_ms, to_ms: quiet, from, to, cut_out: false });
            (from_ms, from) = (busy, to + BREAK);
            pieces.push(Piece { from_ms: quiet, to_ms: busy, from: to, to: from, cut_out: true });
        }
        let to = from + float(end - from_ms) * scale;
        pieces.push(Piece { from_ms, to_ms: end, from, to, cut_out: false });
        Self { pieces }
    }

    /// The last time on the axis.
    pub fn end(&self) -> u64 {
        self.pieces.last().map_or(0, |piece| piece.to_ms)
    }

    /// Place of a time; what is later than the end is at the end.
    pub fn at(&self, ms: u64) -> f64 {
        let piece = self.pieces.iter().find(|piece| ms <= piece.to_ms).or(self.pieces.last());
        piece.map_or(0.0, |piece| {
            let whole = float((piece.to_ms - piece.from_ms).max(1));
            piece.from + (piece.to - piece.from) * float(ms.min(piece.to_ms) - piece.from_ms) / whole
        })
    }

    /// The gaps.
    pub fn breaks(&self) -> Vec<Break> {
        let cut = self.pieces.iter().filter(|piece| piece.cut_out);
        cut.map(|piece| Break {
            from: piece.from,
            to: piece.to,
            label: words::seconds(piece.to_ms - piece.from_ms),
        })
        .collect()
    }

    /// Round times that have room for their names.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        let drawn = self.pieces.iter().filter(|piece| !piece.cut_out);
        let (ms, px) = drawn
            .clone()
            .fold((0, 0.0), |(ms, px), piece| (ms + piece.to_ms - piece.from_ms, px + piece.to - piece.from));
        let round = (0..12).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)));
        let step = round.into_iter().find(|step| float(*step) * px / float(ms.max(1)) >= TICK_ROOM);
        let step = step.unwrap_or(u64::MAX);
        let mut ticks: Vec<(f64, String)> = Vec::new();
        for piece in drawn {
            let first = piece.from_ms.div_ceil(step).saturating_mul(step);
            let times = std::iter::successors(Some(first), |ms| ms.checked_add(step));
            for ms in times.take_while(|ms| *ms <= piece.to_ms) {
                let at = self.at(ms);
                if ticks.last().is_none_or(|(last, _)| at - last >= TICK_ROOM) {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quiet_time_is_cut_out_and_bursts_get_the_room() {
        let axis = Axis::new(&BTreeSet::from([0, 100, 200, 400, 60_400]), 0.0, 1_000.0);
        let [gap] = &axis.breaks()[..] else { panic!("one gap") };
        assert_eq!(gap.label, "60.0 s");
        assert!((gap.to - gap.from - BREAK).abs() < 0.01);
        assert!(axis.at(400) > 900.0);
        assert!((axis.at(60_400) - 1_000.0).abs() < 0.01);
    }

    #[test]
    fn an_axis_that_is_busy_all_along_is_to_scale() {
        let axis = Axis::new(&(0..20).map(|i| i * 500).collect(), 0.0, 1_000.0);
        assert!(axis.breaks().is_empty());
        assert!((axis.at(4_750) - 500.0).abs() < 0.01);
    }

    proptest! {
        #[test]
        fn time_never_runs_backwards_and_stays_on_the_axis(
            times in prop::collection::btree_set(0..10_000_000_u64, 0..40)
        ) {
            let axis = Axis::new(&times, 200.0, 1_000.0);
            let places: Vec<f64> = times.iter().map(|ms| axis.at(*ms)).collect();
            prop_assert!(places.is_sorted());
            prop_assert!(places.iter().all(|x| (199.99..=1_000.01).contains(x)));
            let ticks: Vec<f64> = axis.ticks().into_iter().map(|(at, _)| at).collect();
            prop_assert!(ticks.windows(2).all(|w| w[1] - w[0] >= TICK_ROOM));
            prop_assert!(ticks.len() < 20);
        }
    }
}
