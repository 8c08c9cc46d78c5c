//! How many nodes of a pool may be away at once.
//!
//! Source: reference A14. A budget counts for its reasons, all if it names none, while its schedule is on; of several the least counts. Nodes that
//! are away for whatever reason, silent ones too, use all budgets up.

use buffer_api::{
    duration,
    karpenter::{Budget, DisruptionReason},
    labels::DISRUPTED_TAINT,
};
use cronexpr::{Crontab, FallbackTimezoneOption, ParseOptions};
use jiff::Timestamp;

use crate::{
    index::{Index, NodeView},
    lifecycle::Leaving,
};

/// The budgets of all pools, and what is used up.
#[derive(Debug)]
pub(crate) struct Budgets<'a> {
    pools: Vec<Allowance<'a>>,
    now: Timestamp,
}

#[derive(Debug)]
struct Allowance<'a> {
    budgets: &'a [Budget],
    nodes: usize,
    away: usize,
}

impl<'a> Budgets<'a> {
    /// Counts the initialised nodes of each pool, and those that are away.
    pub(crate) fn new(index: &Index<'a>, leaving: &Leaving) -> Self {
        let mut pools: Vec<Allowance<'a>> = index
            .pools
            .iter()
            .map(|view| Allowance { budgets: &view.pool.spec.disruption.budgets, nodes: 0, away: 0 })
            .collect();
        for (at, view) in index.nodes.iter().enumerate().filter(|(_, view)| view.initialized) {
            let pool = index.claim_of(view).and_then(|claim| claim.pool);
            if let Some(pool) = pool.and_then(|pool| pools.get_mut(pool)) {
                pool.nodes += 1;
                pool.away += usize::from(leaving.nodes[at] || is_away(view));
            }
        }
        Self { pools, now: index.now }
    }

    /// How many more nodes of a pool may go.
    pub(crate) fn left(&self, pool: usize, reason: DisruptionReason) -> usize {
        self.pools.get(pool).map_or(0, |own| self.allowed(own, reason).saturating_sub(own.away))
    }

    /// Whether the pool's budget forbids nothing but by what is away already.
    pub(crate) fn allows_any(&self, pool: usize, reason: DisruptionReason) -> bool {
        self.pools.get(pool).is_some_and(|own| self.allowed(own, reason) > 0)
    }

    /// One more node of the pool goes.
    pub(crate) fn take(&mut self, pool: usize) {
        if let Some(pool) = self.pools.get_mut(pool) {
            pool.away += 1;
        }
    }

    /// When a schedule of one of the pools next begins or ends.
    pub(crate) fn next_change(&self) -> Option<Timestamp> {
        let budgets = self.pools.iter().flat_map(|pool| pool.budgets);
        budgets.filter_map(|budget| Window::of(budget).ok()??.next_change(self.now)).min()
    }

    fn allowed(&self, pool: &Allowance<'_>, reason: DisruptionReason) -> usize {
        allowed(pool.budgets, pool.nodes, reason, self.now)
    }
}

/// Silent nodes and marked ones.
fn is_away(view: &NodeView<'_>) -> bool {
    !view.node.ready || view.has_taint(DISRUPTED_TAINT)
}

/// How many of `total` nodes may be away at once for a reason. What can't be read forbids everything.
fn allowed(budgets: &[Budget], total: usize, reason: DisruptionReason, now: Timestamp) -> usize {
    let matching =
        budgets.iter().filter(|budget| budget.reasons.is_empty() || budget.reasons.contains(&reason));
    let bounds = matching.filter_map(|budget| match Window::of(budget) {
        Ok(window) if window.as_ref().is_none_or(|window| window.is_open(now)) => {
            Some(bound(&budget.nodes, total).unwrap_or(0))
        }
        Ok(_) => None,
        Err(_) => Some(0),
    });
    bounds.min().unwrap_or(usize::MAX)
}

/// A number of nodes, or a percentage of `total`, rounded up.
fn bound(nodes: &str, total: usize) -> Option<usize> {
    match nodes.strip_suffix('%') {
        None => nodes.parse().ok(),
        Some(percent) => {
            let percent: usize = percent.parse().ok().filter(|percent| *percent <= 100)?;
            Some(total.saturating_mul(percent).div_ceil(100))
        }
    }
}

/// Says what is wrong with a budget, if something is.
pub(crate) fn validate(budget: &Budget) -> Result<(), String> {
    if bound(&budget.nodes, 100).is_none() {
        return Err(format!("\"{}\" is neither a number of nodes nor a percentage", budget.nodes));
    }
    Window::of(budget).map(|_| ())
}

/// The times at which a budget counts: from each time of the schedule on, for the duration.
struct Window {
    schedule: Crontab,
    duration: jiff::SignedDuration,
}

impl Window {
    /// Nothing where the budget always counts.
    fn of(budget: &Budget) -> Result<Option<Self>, String> {
        let (schedule, duration) = match (&budget.schedule, &budget.duration) {
            (None, None) => return Ok(None),
            (Some(schedule), Some(duration)) => (schedule, duration),
            _ => return Err("schedule and duration go together".to_owned()),
        };
        let mut options = ParseOptions::default();
        options.fallback_timezone_option = FallbackTimezoneOption::UTC;
        let parsed = cronexpr::parse_crontab_with(in_fields(schedule), options);
        let schedule = parsed.map_err(|_| format!("schedule \"{schedule}\" is no cron expression"))?;
        let span = duration::parse(duration).map_err(|_| format!("\"{duration}\" is no duration"))?;
        let duration = span.try_into().map_err(|_| format!("duration \"{duration}\" is too long"))?;
        Ok(Some(Self { schedule, duration }))
    }

    /// Whether the last time of the schedule is less than the duration ago.
    fn is_open(&self, now: Timestamp) -> bool {
        self.last(now).is_some()
    }

    /// The first time of the schedule whose duration is not over.
    fn last(&self, now: Timestamp) -> Option<Timestamp> {
        let before = now.checked_sub(self.duration).ok()?;
        self.next(before).filter(|time| *time <= now)
    }

    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let after = cronexpr::MakeTimestamp::from_second(after.as_second()).ok()?;
        self.schedule.find_next(after).ok().map(|time| time.timestamp())
    }

    fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        match self.last(now) {
            Some(begin) => begin.checked_add(self.duration).ok(),
            None => self.next(now),
        }
    }
}

/// The names that cron has for common schedules, written out.
fn in_fields(schedule: &str) -> &str {
    match schedule {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn budget(nodes: &str) -> Budget {
        Budget { nodes: nodes.to_owned(), ..Budget::default() }
    }

    fn at(schedule: &str, duration: &str) -> Budget {
        Budget { schedule: Some(schedule.to_owned()), duration: Some(duration.to_owned()), ..budget("0") }
    }

    /// A Wednesday, 12:30 UTC.
    const NOW: &str = "2030-01-02T12:30:00Z";

    #[rstest]
    #[case::default_of_three(vec![budget("10%")], 3, 1)]
    #[case::default_of_thirty(vec![budget("10%")], 30, 3)]
    #[case::default_of_thirty_one(vec![budget("10%")], 31, 4)]
    #[case::number(vec![budget("5")], 3, 5)]
    #[case::least_wins(vec![budget("5"), budget("0")], 30, 0)]
    #[case::all(vec![budget("100%")], 7, 7)]
    #[case::none_given(vec![], 7, usize::MAX)]
    #[case::nonsense_forbids(vec![budget("many")], 7, 0)]
    #[case::too_much_forbids(vec![budget("101%")], 7, 0)]
    #[case::other_reason(vec![Budget { reasons: vec![DisruptionReason::Drifted], ..budget("0") }], 7, usize::MAX)]
    #[case::this_reason(vec![Budget { reasons: vec![DisruptionReason::Empty], ..budget("0") }], 7, 0)]
    #[case::open(vec![at("0 12 * * *", "1h")], 7, 0)]
    #[case::from_its_first_minute(vec![at("30 12 * * *", "1m")], 7, 0)]
    #[case::over(vec![at("0 12 * * *", "30m")], 7, usize::MAX)]
    #[case::not_yet(vec![at("31 12 * * *", "24h")], 7, 0)]
    #[case::of_yesterday(vec![at("31 12 * * *", "23h")], 7, usize::MAX)]
    #[case::working_days(vec![at("0 9 * * mon-fri", "8h")], 7, 0)]
    #[case::weekend(vec![at("0 9 * * sat,sun", "8h")], 7, usize::MAX)]
    #[case::daily(vec![at("@daily", "13h")], 7, 0)]
    #[case::hourly(vec![at("@hourly", "10m")], 7, usize::MAX)]
    #[case::weekly_on_sunday(vec![at("@weekly", "84h30m")], 7, usize::MAX)]
    #[case::weekly_is_open_for_long(vec![at("@weekly", "84h31m")], 7, 0)]
    #[case::no_schedule_at_all(vec![at("sometimes", "10m")], 7, 0)]
    #[case::no_duration(vec![Budget { duration: None, ..at("@daily", "1h") }], 7, 0)]
    fn bounds_disruptions(#[case] all: Vec<Budget>, #[case] total: usize, #[case] want: usize) {
        assert_eq!(allowed(&all, total, DisruptionReason::Empty, NOW.parse().unwrap()), want);
    }

    #[rstest]
    #[case::ends(at("0 12 * * *", "1h"), "2030-01-02T13:00:00Z")]
    #[case::begins(at("0 13 * * *", "1h"), "2030-01-02T13:00:00Z")]
    fn knows_when_a_schedule_changes(#[case] budget: Budget, #[case] want: &str) {
        let window = Window::of(&budget).unwrap().unwrap();
        assert_eq!(window.next_change(NOW.parse().unwrap()), Some(want.parse().unwrap()));
    }
}
