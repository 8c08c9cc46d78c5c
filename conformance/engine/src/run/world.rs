//! What is known of the cluster right now, and how to wait until that changes.
//!
//! Watches write into the world, steps read from it. Whoever waits is woken by every change and never asks on a timer. Everything
//! that happens is put on one clock, whose zero is the start of the scenario.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use buffer_api::labels;
use conformance_report::model::{Lane, TimelineEvent};
use k8s_openapi::api::core::v1 as k8s;
use serde_json::Value;
use tokio::{sync::watch, time::Instant};

use super::{oracle::state, timeline};

/// Which object: the identity under which the world keeps it.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Key {
    /// API version, such as `apps/v1`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace, unless the kind is cluster-scoped.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

/// What belongs to a scenario.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Its namespace.
    pub namespace: String,
    /// Id of the run, as in the label of everything that it creates.
    pub run: String,
    /// Id of the scenario in lower case, likewise.
    pub scenario: String,
    /// Its pool; without one every node and claim counts as its own.
    pub pool: Option<String>,
}

impl Scope {
    /// Whether the scenario is about this object.
    #[must_use]
    pub fn contains(&self, key: &Key, object: &Value) -> bool {
        let label = |name: &str| object["metadata"]["labels"][name].as_str();
        if matches!(key.kind.as_str(), "Node" | "NodeClaim") {
            return self.pool.as_deref().is_none_or(|pool| label(labels::POOL) == Some(pool));
        }
        key.namespace.as_deref() == Some(&self.namespace)
            || (label(labels::RUN) == Some(&self.run) && label(labels::SCENARIO) == Some(&self.scenario))
    }
}

/// An object through time.
#[derive(Clone, Debug)]
pub struct Tracked {
    /// What it looks like now; `None` once it is gone.
    pub now: Option<Arc<Value>>,
    /// Every version that was seen of a scenario's own object, with its time; the newest last.
    pub versions: Vec<(Instant, Arc<Value>)>,
    /// How often it changed.
    pub updates: u64,
    /// When its status was last seen to change.
    pub status_changed: Instant,
}

/// Most versions of one object that are kept.
const MOST_VERSIONS: usize = 2_000;
/// Most entries of a time line.
const MOST_EVENTS: usize = 20_000;

/// A node or claim of the scenario: one UID, one life.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Life {
    /// `Node` or `NodeClaim`.
    pub kind: String,
    /// Name.
    pub name: String,
    /// It was there before the first step.
    pub before: bool,
    /// It is gone.
    pub lost: bool,
}

/// Nodes or claims of the scenario, counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Count {
    /// There now.
    pub now: usize,
    /// There before the first step.
    pub baseline: usize,
    /// UIDs born since, those that are gone again included.
    pub born: usize,
    /// UIDs lost since, those that were there before included.
    pub lost: usize,
}

/// An Event object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Recorded {
    /// Kind of the object that it is about.
    pub kind: String,
    /// Namespace of that object.
    pub namespace: Option<String>,
    /// Name of that object.
    pub name: String,
    /// Reason.
    pub reason: String,
    /// Message.
    pub message: String,
}

/// Which objects a watch sees.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Watched {
    /// API version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Only in this namespace.
    pub namespace: Option<String>,
}

impl Watched {
    /// Whether it sees that object.
    #[must_use]
    pub fn sees(&self, key: &Key) -> bool {
        self.api_version == key.api_version
            && self.kind == key.kind
            && (self.namespace.is_none() || self.namespace == key.namespace)
    }
}

/// A watch that was interrupted is resumed silently: one that still fails repeats its error more often than this.
const STILL_BROKEN: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, Default)]
struct Health {
    synced: bool,
    failed: Option<Failed>,
}

#[derive(Clone, Debug)]
struct Failed {
    since: Instant,
    last: Instant,
    error: String,
}

/// The state of the world.
#[derive(Debug)]
pub struct State {
    scope: Scope,
    started: Instant,
    objects: BTreeMap<Key, Tracked>,
    nodes: BTreeMap<String, state::Node>,
    pods: BTreeMap<(String, String), state::Pod>,
    lives: BTreeMap<String, Life>,
    baseline_taken: bool,
    events: Vec<Recorded>,
    timeline: Vec<TimelineEvent>,
    watches: BTreeMap<Watched, Health>,
}

/// The world of one scenario. Clones share it.
#[derive(Clone, Debug)]
pub struct World(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changes: watch::Sender<u64>,
}

impl World {
    /// A world of which nothing is known yet; its clock starts now.
    #[must_use]
    pub fn new(scope: Scope) -> Self {
        let state = State {
            scope,
            started: Instant::now(),
            objects: BTreeMap::new(),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            lives: BTreeMap::new(),
            baseline_taken: false,
            events: Vec::new(),
            timeline: Vec::new(),
            watches: BTreeMap::new(),
        };
        Self(Arc::new(Shared { state: Mutex::new(state), changes: watch::Sender::new(0) }))
    }

    /// Looks at the state. Keep it short: the watches wait meanwhile.
    pub fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.lock())
    }

    /// A receiver that is woken by every change from now on.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    fn write(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.0.changes.send_modify(|version| *version += 1);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // a step that panicked while it looked has left the state whole: nothing but this module writes
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on births and losses count.
    pub fn take_baseline(&self) {
        self.write(|state| state.baseline_taken = true);
    }

    /// Puts something on the time line.
    pub fn note(&self, lane: Lane, object: &str, what: &str) {
        self.write(|state| state.note(lane, object.to_owned(), what.to_owned()));
    }

    /// A watch begins; false if there is one that sees the same.
    #[must_use]
    pub fn watch_begins(&self, watched: &Watched) -> bool {
        let mut state = self.lock();
        let covered = |other: &Watched| {
            let wider = Watched { namespace: None, ..watched.clone() };
            other == watched || *other == wider
        };
        if state.watches.keys().any(covered) {
            return false;
        }
        state.watches.insert(watched.clone(), Health::default());
        true
    }

    /// An object was seen.
    pub fn seen(&self, watched: &Watched, object: Value) {
        self.write(|state| state.apply(watched, object));
    }

    /// An object is gone.
    pub fn gone(&self, watched: &Watched, object: &Value) {
        self.write(|state| {
            if let Some(key) = key_of(watched, object) {
                state.remove(&key);
            }
        });
    }

    /// A list is complete: whatever the watch knew and did not list is gone.
    pub fn synced(&self, watched: &Watched, listed: &BTreeSet<Key>) {
        self.write(|state| {
            let unlisted: Vec<_> = state
                .objects
                .iter()
                .filter(|(key, tracked)| tracked.now.is_some() && watched.sees(key) && !listed.contains(key))
                .map(|(key, _)| key.clone())
                .collect();
            for key in unlisted {
                state.remove(&key);
            }
            state.watches.insert(watched.clone(), Health { synced: true, failed: None });
        });
    }

    /// The watch could not go on.
    pub fn watch_failed(&self, watched: &Watched, error: String) {
        self.write(|state| {
            let health = state.watches.entry(watched.clone()).or_default();
            let now = Instant::now();
            let since = match &health.failed {
                Some(failed) if failed.last.elapsed() < STILL_BROKEN => failed.since,
                _ => now,
            };
            health.failed = Some(Failed { since, last: now, error });
        });
    }
}

/// Key of an object as the API server sent it.
#[must_use]
pub fn key_of(watched: &Watched, object: &Value) -> Option<Key> {
    let metadata = object.get("metadata")?;
    let text = |name: &str| metadata.get(name).and_then(Value::as_str).map(str::to_owned);
    Some(Key {
        api_version: watched.api_version.clone(),
        kind: watched.kind.clone(),
        namespace: text("namespace"),
        name: text("name")?,
    })
}

impl State {
    /// The object, if it was ever seen.
    #[must_use]
    pub fn tracked(&self, key: &Key) -> Option<&Tracked> {
        self.objects.get(key)
    }

    /// The object as it is now.
    #[must_use]
    pub fn object(&self, key: &Key) -> Option<&Arc<Value>> {
        self.tracked(key)?.now.as_ref()
    }

    /// All objects of a kind that are there now.
    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a Key, &'a Arc<Value>)> {
        self.objects.iter().filter(move |(key, _)| key.kind == kind).filter_map(|(key, tracked)| {
            let now = tracked.now.as_ref()?;
            Some((key, now))
        })
    }

    /// All nodes of the cluster.
    pub fn nodes(&self) -> impl Iterator<Item = &state::Node> {
        self.nodes.values()
    }

    /// The node of that name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&state::Node> {
        self.nodes.get(name)
    }

    /// All pods of the cluster.
    pub fn pods(&self) -> impl Iterator<Item = &state::Pod> {
        self.pods.values()
    }

    /// The pod with that key.
    #[must_use]
    pub fn pod(&self, key: &Key) -> Option<&state::Pod> {
        self.pods.get(&(key.namespace.clone().unwrap_or_default(), key.name.clone()))
    }

    /// Nodes or claims of the scenario, counted.
    #[must_use]
    pub fn count(&self, kind: &str) -> Count {
        let mut count = Count::default();
        for life in self.lives.values().filter(|life| life.kind == kind) {
            count.now += usize::from(!life.lost);
            count.baseline += usize::from(life.before);
            count.born += usize::from(!life.before);
            count.lost += usize::from(life.lost);
        }
        count
    }

    /// Nodes or claims of the scenario, those that are gone included, by UID.
    pub fn lives<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a String, &'a Life)> {
        self.lives.iter().filter(move |(_, life)| life.kind == kind)
    }

    /// Events about the scenario's objects, in the order in which they were seen.
    #[must_use]
    pub fn events(&self) -> &[Recorded] {
        &self.events
    }

    /// The time line so far.
    #[must_use]
    pub fn timeline(&self) -> &[TimelineEvent] {
        &self.timeline
    }

    /// Time since the start of the scenario.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// What belongs to the scenario.
    #[must_use]
    pub const fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Whether a watch sees that object.
    #[must_use]
    pub fn is_watched(&self, key: &Key) -> bool {
        self.watches.keys().any(|watched| watched.sees(key))
    }

    /// Whether every watch has listed its objects once.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.watches.values().all(|health| health.synced)
    }

    /// A watch that does not deliver at the moment: what it sees, since when, why.
    #[must_use]
    pub fn broken(&self) -> Option<String> {
        self.watches.iter().find_map(|(watched, health)| {
            let failed = health.failed.as_ref().filter(|failed| failed.last.elapsed() < STILL_BROKEN)?;
            let Failed { since, error, .. } = failed;
            Some(format!(
                "the watch of {}s has been broken for {:.1?}: {error}",
                watched.kind,
                since.elapsed()
            ))
        })
    }

    fn note(&mut self, lane: Lane, object: String, what: String) {
        if self.timeline.len() < MOST_EVENTS {
            let at_ms = millis(self.age());
            self.timeline.push(TimelineEvent { at_ms, lane, object, what });
        }
    }

    fn apply(&mut self, watched: &Watched, mut object: Value) {
        let Some(key) = key_of(watched, &object) else { return };
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        if key.kind == "Event" {
            self.record(&object, watched);
            return;
        }
        // another UID under the same name: the old object is gone, whether or not we saw it go
        let replaced =
            self.object(&key).is_some_and(|old| old["metadata"]["uid"] != object["metadata"]["uid"]);
        if replaced {
            self.remove(&key);
        }
        let ours = self.scope.contains(&key, &object);
        let old = self.object(&key).cloned();
        if ours {
            for (lane, what) in timeline::transitions(&key, old.as_deref(), &object) {
                self.note(lane, timeline::name(&key), what);
            }
        }
        if matches!(key.kind.as_str(), "Node" | "NodeClaim") && ours {
            self.begin_life(&key, &object);
        }
        match key.kind.as_str() {
            "Node" => match serde_json::from_value::<k8s::Node>(object.clone()) {
                Ok(node) => {
                    self.nodes.insert(key.name.clone(), state::Node::from(&node));
                }
                Err(error) => tracing::warn!(node = key.name, %error, "a node can't be read"),
            },
            "Pod" => match serde_json::from_value::<k8s::Pod>(object.clone()) {
                Ok(pod) => {
                    let name = (key.namespace.clone().unwrap_or_default(), key.name.clone());
                    self.pods.insert(name, state::Pod::from(&pod));
                }
                Err(error) => tracing::warn!(pod = key.name, %error, "a pod can't be read"),
            },
            _ => {}
        }
        self.track(key, old.as_deref(), object, ours);
    }

    fn track(&mut self, key: Key, old: Option<&Value>, object: Value, ours: bool) {
        let now = Instant::now();
        let object = Arc::new(object);
        let tracked = self.objects.entry(key).or_insert_with(|| Tracked {
            now: None,
            versions: Vec::new(),
            updates: 0,
            status_changed: now,
        });
        if old.is_none_or(|old| old.get("status") != object.get("status")) {
            tracked.status_changed = now;
        }
        tracked.updates += 1;
        if ours && tracked.versions.len() < MOST_VERSIONS {
            tracked.versions.push((now, Arc::clone(&object)));
        }
        tracked.now = Some(object);
    }

    fn begin_life(&mut self, key: &Key, object: &Value) {
        let Some(uid) = object["metadata"]["uid"].as_str() else { return };
        let before = !self.baseline_taken;
        self.lives.entry(uid.to_owned()).or_insert_with(|| Life {
            kind: key.kind.clone(),
            name: key.name.clone(),
            before,
            lost: false,
        });
    }

    fn remove(&mut self, key: &Key) {
        let Some(tracked) = self.objects.get_mut(key) else { return };
        let Some(old) = tracked.now.take() else { return };
        tracked.updates += 1;
        tracked.status_changed = Instant::now();
        match key.kind.as_str() {
            "Node" => drop(self.nodes.remove(&key.name)),
            "Pod" => {
                self.pods.remove(&(key.namespace.clone().unwrap_or_default(), key.name.clone()));
            }
            _ => {}
        }
        if let Some(life) = old["metadata"]["uid"].as_str().and_then(|uid| self.lives.get_mut(uid)) {
            life.lost = true;
        }
        if let Some(lane) = timeline::lane(&key.kind).filter(|_| self.scope.contains(key, &old)) {
            self.note(lane, timeline::name(key), "deleted".to_owned());
        }
    }

    fn record(&mut self, event: &Value, watched: &Watched) {
        let about = &event["involvedObject"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let recorded = Recorded {
            kind: text(&about["kind"]),
            namespace: about["namespace"].as_str().filter(|name| !name.is_empty()).map(str::to_owned),
            name: text(&about["name"]),
            reason: text(&event["reason"]),
            message: text(&event["message"]),
        };
        // what happened before the scenario is no evidence
        let old = !self.watches.get(watched).is_some_and(|health| health.synced);
        if old || self.events.contains(&recorded) || !self.is_about_us(&recorded) {
            return;
        }
        let object = format!("{}/{}", recorded.kind, recorded.name);
        self.note(Lane::Event, object, format!("{}: {}", recorded.reason, recorded.message));
        self.events.push(recorded);
    }

    fn is_about_us(&self, event: &Recorded) -> bool {
        match event.kind.as_str() {
            // an event can be there before the watch has shown what it is about
            "Node" | "NodeClaim" => {
                self.scope.pool.is_none()
                    || self.lives.values().any(|life| life.kind == event.kind && life.name == event.name)
            }
            _ => event.namespace.as_deref() == Some(&self.scope.namespace),
        }
    }
}

/// Whole milliseconds, for the report.
#[must_use]
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
