//! The loop: takes changes in, says when to plan, and carries plans out.
//!
//! One plan is made at a time. The planner promises that a plan that has been carried out leads to an empty one, or asks to be called
//! again at once, so own writes wake nobody. A change plans [`QUIET`] after the last one of its burst, and when the writes of the plan before are
//! through, but never later than [`LATEST`] after the first: then the objects that are still being written are left out.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use buffer_client::chain;
use buffer_core::{
    plan::{Plan, Settings, plan},
    snapshot::Snapshot,
};
use jiff::Timestamp;
use kube::{Api, Client};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, debug, field, info, info_span, warn};

use crate::{
    admin::Admin,
    backoff::Backoff,
    cache::{Cache, Change},
    config::Config,
    convert::Interner,
    error::Error,
    events::EventLog,
    kind::{Kind, ObjectRef},
    leader::{Election, Fence, identity},
    metrics::Metrics,
    watch::Watches,
    write::{Action, Group, MANAGER, NodesFirst, Outcome, Turn, Writer, groups, predicted},
};

/// A burst of changes is over after so long without one.
const QUIET: Duration = Duration::from_millis(5);
/// Longest delay of a plan.
const LATEST: Duration = Duration::from_millis(50);
/// The safety net: a plan at least this often.
const RESYNC: Duration = Duration::from_secs(30);
/// Better nodes are looked for after so long without a change.
const IDLE: Duration = Duration::from_secs(1);
/// They are looked for again after so long although nothing has changed: prices and offerings may have, and budgets' schedules.
const SEARCH_AGAIN: Duration = Duration::from_mins(5);
/// So long a node is left alone that was to be removed or replaced for a better one, and was not after all.
const TRIED: Duration = Duration::from_mins(10);
/// How long the first lists may take.
const LIST_PATIENCE: Duration = Duration::from_secs(20);
/// How long writes that are on their way may take at the end.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long an object is left alone that the watch has yet to show as gone.
const HOLD: Duration = Duration::from_secs(1);
/// So many plans in a row may be caused by own writes alone; then each waits longer than the one before.
const FOLLOW_UPS: u32 = 20;
/// Changes that the watches may be ahead.
const QUEUE: usize = 1024;

/// Runs the controller until `shutdown` is cancelled.
///
/// Fails where the cluster can't be reached or does not have the kinds that are needed, and where the admin port can't be used.
/// Failed reads and writes of single objects are logged, counted and repeated.
pub async fn run(config: Config, shutdown: CancellationToken) -> Result<(), Error> {
    let election = &config.leader_election;
    let timing = election.timing()?;
    let identity = identity(&election.identity);
    let mut connection = buffer_client::config(config.kubeconfig.as_deref()).await?;
    buffer_client::set_user_agent(
        &mut connection,
        &format!("{MANAGER}/{} ({identity})", env!("CARGO_PKG_VERSION")),
    );
    let metrics = Metrics::new();
    let admin = Admin::new(metrics.clone());
    if let Some(port) = config.admin_port {
        admin.serve(port, shutdown.clone()).await?;
    }
    let settings = Settings::from(config.feature_gates);
    info!(
        capacity_buffer = settings.capacity_buffer,
        leader_election = election.enabled,
        identity,
        "starting"
    );
    if !election.enabled {
        let client = buffer_client::client(connection)?;
        Controller::new(client, settings, metrics, admin, plan).run(shutdown).await?;
        return Ok(());
    }
    let namespace = election.namespace.as_ref().unwrap_or(&connection.default_namespace).clone();
    let leases = Api::namespaced(buffer_client::client(connection.clone())?, &namespace);
    let (mut election, fence) = Election::start(leases, &election.name, &identity, timing, metrics.clone());
    let client = buffer_client::gated_client(connection, fence.gate())?;
    let mut controller = Controller::new(client, settings, metrics, admin, plan);
    controller.standby = Some(fence);
    let left = tokio::select! {
        biased;
        // with the controller all that it has on its way goes
        () = election.lost() => return Err(Error::LeaseLost),
        left = controller.run(shutdown) => left?,
    };
    // what is still on its way may arrive when another leads: then the lease has to run out by itself
    if left == 0 {
        election.release().await;
    }
    Ok(())
}

/// What woke the planner.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Reason {
    /// The first lists are complete.
    Start,
    /// This process has become the leader.
    Elected,
    /// A watch has shown a change.
    Watch,
    /// The planner wants to see its own writes carried out, or a look that it asked for was taken.
    Own,
    /// An object that the last plan wanted to write is free.
    Free,
    /// A time has come: the plan's wake-up, the end of a pod's protection or of a rest after a failure.
    Timer,
    /// Nothing has happened for [`IDLE`]: time to look for better nodes.
    Search,
    /// Nothing, for [`RESYNC`].
    Resync,
}

impl Reason {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Elected => "elected",
            Self::Watch => "watch",
            Self::Own => "follow_up",
            Self::Free => "object_free",
            Self::Timer => "timer",
            Self::Search => "search",
            Self::Resync => "resync",
        }
    }
}

/// A burst of changes that wait for a plan.
#[derive(Clone, Copy, Debug)]
struct Burst {
    reason: Reason,
    first: Instant,
    last: Instant,
}

/// The state of the loop. `P` is the planner.
struct Controller<P> {
    client: Client,
    settings: Settings,
    planner: P,
    metrics: Metrics,
    admin: Admin,
    interner: Arc<Interner>,
    writer: Writer,
    cache: Cache,
    events: EventLog,
    backoff: Backoff,
    /// There until this process may write: until then nothing is planned.
    standby: Option<Fence>,
    /// Kinds whose first list is not complete.
    unlisted: HashSet<Kind>,
    burst: Option<Burst>,
    /// Objects that are being written, with the versions that the watch has shown of them meanwhile.
    busy: HashMap<ObjectRef, Vec<u64>>,
    writes: JoinSet<Outcome>,
    /// Claims whose nodes' pods were listed since the last plan.
    verified: HashSet<String>,
    /// The last plan wanted to write objects that were busy.
    left_out: bool,
    /// Plans in a row that only own writes caused.
    follow_ups: u32,
    planned: Instant,
    /// When better nodes were looked for, if nothing has changed since.
    searched: Option<Instant>,
    /// UIDs of claims whose nodes were marked or replaced, and when.
    tried: HashMap<String, Instant>,
    /// When to plan even if nothing changes.
    timer: (Instant, Reason),
}

impl<P> Controller<P>
where
    P: Fn(&Snapshot, Settings, Timestamp) -> Plan + Clone + Send + 'static,
{
    fn new(client: Client, settings: Settings, metrics: Metrics, admin: Admin, planner: P) -> Self {
        let interner = Arc::new(Interner::default());
        let now = Instant::now();
        Self {
            events: EventLog::start(client.clone(), metrics.clone()),
            writer: Writer::new(client.clone(), Arc::clone(&interner), metrics.clone()),
            client,
            settings,
            planner,
            metrics,
            admin,
            interner,
            cache: Cache::default(),
            backoff: Backoff::default(),
            standby: None,
            unlisted: HashSet::new(),
            burst: None,
            busy: HashMap::new(),
            writes: JoinSet::new(),
            verified: HashSet::new(),
            left_out: false,
            follow_ups: 0,
            planned: now,
            searched: None,
            tried: HashMap::new(),
            timer: (now + RESYNC, Reason::Resync),
        }
    }

    /// Runs until the shutdown. Gives the number of groups of writes that are still on their way then.
    async fn run(mut self, shutdown: CancellationToken) -> Result<usize, Error> {
        if self.standby.is_none() {
            self.metrics.leader(true);
        }
        let (sender, mut changes) = mpsc::channel(QUEUE);
        let mut watches = Watches::start(
            &self.client,
            self.settings.capacity_buffer,
            &self.interner,
            &self.metrics,
            sender,
        );
        self.unlisted = watches.kinds.iter().copied().collect();
        let patience = Instant::now() + LIST_PATIENCE;
        let mut received = Vec::new();
        loop {
            let listed = self.unlisted.is_empty();
            let due = if listed { self.due() } else { patience };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = sleep_until(due) => {
                    if !listed {
                        return Err(self.not_listed(&watches));
                    }
                    // whatever has come in by now belongs to this plan
                    while let Ok(change) = changes.try_recv() {
                        self.shown(change);
                    }
                    if self.standby.is_some() {
                        self.stand_by();
                    } else {
                        self.plan().await?;
                    }
                }
                () = opened(&mut self.standby) => {
                    self.standby = None;
                    self.wake(Reason::Elected);
                }
                Some(outcome) = self.writes.join_next() => self.written(outcome.map_err(Error::Panicked)?),
                panic = watches.panicked() => return Err(Error::Panicked(panic)),
                _ = changes.recv_many(&mut received, QUEUE) => received.drain(..).for_each(|change| self.shown(change)),
            }
        }
        info!(writes = self.writes.len(), "stopping");
        let rest = timeout(FAREWELL, async { while self.writes.join_next().await.is_some() {} }).await;
        if rest.is_err() {
            warn!(writes = self.writes.len(), "gave up on writes that were on their way");
        }
        Ok(self.writes.len())
    }

    /// What a plan does besides, for one that does not plan.
    fn stand_by(&mut self) {
        let now = Instant::now();
        self.cache.expire(now, Timestamp::now());
        self.metrics.buffers(self.cache.buffers());
        self.planned = now;
        self.timer = (now + RESYNC, Reason::Resync);
    }

    /// When to plan next, as things are now.
    fn due(&self) -> Instant {
        if self.standby.is_some() {
            return self.timer.0;
        }
        let burst = self.burst.map(|burst| {
            let latest = burst.first + LATEST;
            if burst.reason == Reason::Own && self.follow_ups >= FOLLOW_UPS {
                let exponent = (self.follow_ups - FOLLOW_UPS).min(7);
                burst.last + LATEST * (1 << exponent)
            } else if self.writes.is_empty() {
                latest.min(burst.last + QUIET)
            } else {
                latest
            }
        });
        let rest = self.backoff.next(self.planned);
        [burst, rest].into_iter().flatten().fold(self.timer.0, Instant::min)
    }

    fn wake(&mut self, reason: Reason) {
        let now = Instant::now();
        match &mut self.burst {
            Some(burst) => {
                burst.last = now;
                if burst.reason == Reason::Own {
                    burst.reason = reason;
                }
            }
            None => self.burst = Some(Burst { reason, first: now, last: now }),
        }
    }

    /// Takes in what a watch has shown.
    fn shown(&mut self, change: Change) {
        let list_done = change.list_done();
        let subject = change.subject();
        let busy =
            subject.and_then(|(object, version)| self.busy.get_mut(object).map(|seen| (seen, version)));
        // this may be the echo of the write that is on its way: its answer will tell
        let echo = busy.map(|(seen, version)| {
            seen.push(version);
            seen.len() - 1
        });
        let object = echo.and(subject.map(|(object, _)| object.clone()));
        let relevant = self.cache.apply(change, Instant::now());
        match (relevant, object) {
            (true, None) => self.wake(Reason::Watch),
            (false, Some(object)) => {
                if let Some(seen) = self.busy.get_mut(&object) {
                    seen.pop();
                }
            }
            _ => {}
        }
        if let Some(kind) = list_done
            && self.unlisted.remove(&kind)
            && self.unlisted.is_empty()
        {
            info!("all kinds are listed");
            self.admin.set_ready();
            self.wake(Reason::Start);
        }
    }

    /// Takes in what came of a group of writes.
    fn written(&mut self, outcome: Outcome) {
        let now = Instant::now();
        let own: Vec<u64> =
            outcome.changes.iter().filter_map(Change::subject).map(|(_, version)| version).collect();
        let mut foreign = false;
        for object in &outcome.objects {
            let seen = self.busy.remove(object).unwrap_or_default();
            foreign |= seen.iter().any(|version| !own.contains(version));
            if outcome.failed.is_none() {
                self.backoff.succeeded(object);
            }
        }
        for change in outcome.changes {
            self.cache.apply(change, now);
        }
        for object in &outcome.hold {
            self.backoff.hold(object, HOLD, now);
        }
        let verified = !outcome.verified.is_empty();
        self.verified.extend(outcome.verified);
        if let Some((object, action, error)) = outcome.failed {
            self.metrics.error("write");
            let rest = self.backoff.failed(&object, error.longest_rest(), now);
            warn!(%object, action, rest = ?rest, error = chain(&error), "write failed, will be repeated");
        }
        if foreign {
            self.wake(Reason::Watch);
        } else if verified {
            self.wake(Reason::Own);
        } else if self.left_out {
            self.wake(Reason::Free);
        }
    }

    async fn plan(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        let time = Timestamp::now();
        let reason = match self.burst.take() {
            Some(burst) => burst.reason,
            None if now >= self.timer.0 => self.timer.1,
            None => Reason::Timer,
        };
        self.follow_ups = if reason == Reason::Own { self.follow_ups.saturating_add(1) } else { 0 };
        if self.follow_ups == FOLLOW_UPS {
            warn!("many plans in a row were caused by own writes alone: slowing down");
        }
        let span = info_span!("plan", reason = reason.name(), writes = field::Empty);
        self.cache.expire(now, time);
        self.backoff.forget(now);
        self.events.forget(now);
        let settings = Settings { search: reason == Reason::Search, ..self.settings };
        let (planner, inside) = (self.planner.clone(), span.clone());
        self.tried.retain(|_, time| now < *time + TRIED);
        let mut snapshot = self.cache.lend();
        snapshot.tried = self.tried.keys().cloned().collect();
        let (snapshot, plan) = tokio::task::spawn_blocking(move || {
            let plan = inside.in_scope(|| planner(&snapshot, settings, time));
            (snapshot, plan)
        })
        .await
        .map_err(Error::Panicked)?;
        self.tried.extend(plan.tries(&snapshot).map(|uid| (uid.to_owned(), now)));
        self.cache.restore(snapshot);
        self.planned = Instant::now();
        self.metrics.plan(reason.name(), self.planned - now);
        self.metrics.buffers(self.cache.buffers());

        let by_itself = matches!(reason, Reason::Search | Reason::Timer | Reason::Resync);
        if settings.search {
            self.searched = Some(now);
        }
        if !by_itself || !plan.changes_nothing() {
            self.searched = None;
        }
        self.timer = self.next_timer(&plan, time);
        let again = plan.wake_up.is_some_and(|wake_up| wake_up <= time);
        self.carry_out(plan, &span, time);
        self.verified.clear();
        // with nothing on its way nothing will be different: failed writes rest
        if again && !self.writes.is_empty() {
            self.wake(Reason::Own);
        }
        Ok(())
    }

    fn next_timer(&self, plan: &Plan, time: Timestamp) -> (Instant, Reason) {
        let wake_up = [plan.wake_up, self.cache.next_expiry()].into_iter().flatten().min();
        let wake_up = wake_up
            .filter(|wake_up| *wake_up > time)
            .map(|wake_up| (self.planned + wake_up.duration_since(time).unsigned_abs(), Reason::Timer));
        let search = plan.search.then(|| match self.searched {
            None => (self.planned + IDLE, Reason::Search),
            Some(searched) => ((searched + SEARCH_AGAIN).max(self.planned + IDLE), Reason::Search),
        });
        let resync = (self.planned + RESYNC, Reason::Resync);
        [wake_up, search]
            .into_iter()
            .flatten()
            .fold(resync, |first, other| if other.0 < first.0 { other } else { first })
    }

    /// Sends the writes of a plan, but for those to objects that are busy or rest.
    fn carry_out(&mut self, mut plan: Plan, span: &Span, time: Timestamp) {
        for event in std::mem::take(&mut plan.events) {
            self.events.record(&event, self.planned);
        }
        self.left_out = false;
        let (mut sent, mut nodes_left_out) = (0, false);
        let nodes_first = NodesFirst::new();
        let mut groups = groups(plan, &self.cache, &self.verified);
        groups.sort_by_key(|group| !group.changes_nodes());
        for group in groups {
            let busy = group.objects.iter().any(|object| self.busy.contains_key(object));
            let rests = group.objects.iter().any(|object| self.backoff.rests(object, self.planned));
            if busy || rests || nodes_left_out && group.waits_for_nodes() {
                self.left_out |= busy;
                nodes_left_out |= group.changes_nodes();
                continue;
            }
            sent += group.writes.len();
            let turn = nodes_first.turn(&group);
            self.start(group, turn, span, time);
        }
        span.record("writes", sent);
        span.in_scope(|| debug!(sent, busy = self.busy.len(), "planned"));
    }

    fn start(&mut self, group: Group, turn: Turn, span: &Span, time: Timestamp) {
        for write in &group.writes {
            span.in_scope(|| debug!(object = %write.object, action = write.action.name(), "writing"));
            if let Action::Create(new) = &write.action {
                self.cache.apply(predicted(new, time), self.planned);
            }
        }
        self.busy.extend(group.objects.iter().map(|object| (object.clone(), Vec::new())));
        self.writes.spawn(self.writer.clone().send(group, turn).instrument(span.clone()));
    }

    fn not_listed(&self, watches: &Watches) -> Error {
        let mut kinds: Vec<_> = self.unlisted.iter().copied().collect();
        kinds.sort_unstable();
        let missing: Vec<_> = kinds
            .into_iter()
            .map(|kind| {
                let trouble = watches.trouble(kind);
                format!("{} ({})", kind.name(), trouble.as_deref().unwrap_or("no answer"))
            })
            .collect();
        Error::NotListed { waited: LIST_PATIENCE, missing: missing.join("; ") }
    }
}

/// Waits until this process may write, if it may not yet.
async fn opened(standby: &mut Option<Fence>) {
    match standby {
        Some(fence) => fence.opened().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
