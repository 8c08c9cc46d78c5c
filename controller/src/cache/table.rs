//! The objects of one type, ordered by resource version.
//!
//! Two sources say what an object is: the watch, and the answers to own writes. Both carry resource versions, so the later
//! one wins whichever comes first. Three things need care:
//!
//! * a created object is here before the watch shows it. A list that does not have it yet must not remove it, so it is kept
//!   until the watch has shown it or [`UNSEEN`] has passed;
//! * the watch may show an object's end before the answer to a write arrives: ends are remembered for [`GONE`];
//! * while a creation is on its way there is no answer yet, only a prediction, which anything real replaces.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tokio::time::Instant;

use crate::kind::{Kind, ObjectRef};

/// How long the watch may take to show an object that an own write has made.
pub const UNSEEN: Duration = Duration::from_secs(10);
/// How long the end of an object is remembered: longer than any answer may take.
const GONE: Duration = Duration::from_mins(1);

/// One object as the API server gave it.
#[derive(Clone, Debug)]
pub struct Observed<T> {
    /// Which object.
    pub object: ObjectRef,
    /// Resource version; 0 if unknown.
    pub version: u64,
    /// Owners; filled in for nodes only.
    pub owners: Vec<OwnerReference>,
    /// When the protection of a pod from disruption ends.
    pub protected_until: Option<Timestamp>,
    /// The slim value.
    pub value: T,
}

/// Something that happens to a table.
#[derive(Debug)]
pub enum Op<T> {
    /// A list of all objects of a kind begins.
    Init(Kind),
    /// An object of that list.
    Listed(Observed<T>),
    /// The list has ended: what was not in it is gone.
    InitDone(Kind),
    /// The watch shows an object.
    Applied(Observed<T>),
    /// The watch shows the end of an object, at a resource version.
    Deleted(ObjectRef, u64),
    /// An own write was answered with this.
    Answered(Observed<T>),
    /// An object is being created.
    Predicted(ObjectRef, T),
    /// The creation failed.
    Retracted(ObjectRef),
}

impl<T> Op<T> {
    /// The object and resource version that an operation is about, where the API server gave one.
    pub fn subject(&self) -> Option<(&ObjectRef, u64)> {
        match self {
            Self::Listed(object) | Self::Applied(object) | Self::Answered(object) => {
                Some((&object.object, object.version))
            }
            Self::Deleted(object, version) => Some((object, *version)),
            Self::Init(_) | Self::InitDone(_) | Self::Predicted(..) | Self::Retracted(_) => None,
        }
    }

    /// The kind whose list an operation ends.
    pub fn list_done(&self) -> Option<Kind> {
        match self {
            Self::InitDone(kind) => Some(*kind),
            _ => None,
        }
    }
}

/// What is known of an object beside its slim value.
#[derive(Debug)]
pub struct Row {
    /// Which object.
    pub object: ObjectRef,
    /// Resource version; 0 for a prediction.
    pub version: u64,
    /// Owners.
    pub owners: Vec<OwnerReference>,
    protected_until: Option<Timestamp>,
    /// Until when the object is believed in although no watch has shown it; `None` once it has.
    unseen_until: Option<Instant>,
}

/// The objects of one type.
#[derive(Debug)]
pub struct Table<T> {
    values: Vec<T>,
    rows: Vec<Row>,
    index: HashMap<ObjectRef, usize>,
    gone: HashMap<ObjectRef, (u64, Instant)>,
    listing: HashMap<Kind, HashSet<ObjectRef>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            rows: Vec::new(),
            index: HashMap::new(),
            gone: HashMap::new(),
            listing: HashMap::new(),
        }
    }
}

/// A resource version as a number; 0 if there is none.
pub fn version(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

impl<T: PartialEq> Table<T> {
    /// Takes an operation in. True if it changes a value that `matters`, before or after.
    pub fn apply(&mut self, op: Op<T>, now: Instant, matters: impl Fn(&T) -> bool) -> bool {
        match op {
            Op::Init(kind) => {
                self.listing.insert(kind, HashSet::new());
                false
            }
            Op::Listed(seen) => {
                if let Some(listed) = self.listing.get_mut(&seen.object.kind) {
                    listed.insert(seen.object.clone());
                }
                self.put(seen, None, matters)
            }
            Op::Applied(seen) => self.put(seen, None, matters),
            Op::InitDone(kind) => self.end_list(kind, now, matters),
            Op::Deleted(object, version) => self.end(object, version, now, matters),
            Op::Answered(answer) => {
                if self.gone.get(&answer.object).is_some_and(|&(gone, _)| answer.version <= gone) {
                    return false;
                }
                self.put(answer, Some(now + UNSEEN), matters)
            }
            Op::Predicted(object, value) => {
                if self.index.contains_key(&object) {
                    return false;
                }
                let prediction =
                    Observed { object, version: 0, owners: Vec::new(), protected_until: None, value };
                self.put(prediction, Some(now + UNSEEN), matters)
            }
            Op::Retracted(object) => match self.index.get(&object) {
                Some(&at) if self.rows[at].version == 0 => matters(&self.remove(at)),
                _ => false,
            },
        }
    }

    fn put(&mut self, new: Observed<T>, unseen_until: Option<Instant>, matters: impl Fn(&T) -> bool) -> bool {
        let Observed { object, version, owners, protected_until, value } = new;
        let Some(&at) = self.index.get(&object) else {
            self.gone.remove(&object);
            self.index.insert(object.clone(), self.rows.len());
            self.rows.push(Row { object, version, owners, protected_until, unseen_until });
            let counts = matters(&value);
            self.values.push(value);
            return counts;
        };
        let row = &mut self.rows[at];
        if unseen_until.is_none() {
            row.unseen_until = None;
        }
        if version != 0 && version < row.version {
            return false;
        }
        row.version = version;
        row.owners = owners;
        row.protected_until = protected_until;
        if self.values[at] == value {
            return false;
        }
        let old = std::mem::replace(&mut self.values[at], value);
        matters(&old) || matters(&self.values[at])
    }

    fn end(&mut self, object: ObjectRef, version: u64, now: Instant, matters: impl Fn(&T) -> bool) -> bool {
        let at = self.index.get(&object).copied();
        // a newer object of the same name has been created meanwhile
        if version != 0 && at.is_some_and(|at| self.rows[at].version > version) {
            return false;
        }
        self.gone.insert(object, (version, now));
        at.is_some_and(|at| matters(&self.remove(at)))
    }

    fn end_list(&mut self, kind: Kind, now: Instant, matters: impl Fn(&T) -> bool) -> bool {
        let listed = self.listing.remove(&kind).unwrap_or_default();
        let mut changed = false;
        for at in (0..self.rows.len()).rev() {
            let row = &self.rows[at];
            let believed = row.unseen_until.is_some_and(|until| until > now);
            if row.object.kind == kind && !believed && !listed.contains(&row.object) {
                changed |= matters(&self.remove(at));
            }
        }
        changed
    }

    fn remove(&mut self, at: usize) -> T {
        let row = self.rows.swap_remove(at);
        self.index.remove(&row.object);
        if let Some(moved) = self.rows.get(at) {
            self.index.insert(moved.object.clone(), at);
        }
        self.values.swap_remove(at)
    }

    /// Forgets objects that the watch should have shown by now, and old ends.
    pub fn expire(&mut self, now: Instant) {
        for at in (0..self.rows.len()).rev() {
            if self.rows[at].unseen_until.is_some_and(|until| until <= now) {
                self.remove(at);
            }
        }
        self.gone.retain(|_, &mut (_, since)| now.duration_since(since) < GONE);
    }

    /// Calls `end` on each value whose protection ends by now.
    pub fn end_protection(&mut self, now: Timestamp, end: impl Fn(&mut T)) {
        for (row, value) in self.rows.iter_mut().zip(&mut self.values) {
            if row.protected_until.is_some_and(|until| until <= now) {
                row.protected_until = None;
                end(value);
            }
        }
    }

    /// When the next protection ends.
    pub fn next_end_of_protection(&self) -> Option<Timestamp> {
        self.rows.iter().filter_map(|row| row.protected_until).min()
    }

    /// All values.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// One object.
    pub fn get(&self, object: &ObjectRef) -> Option<(&Row, &T)> {
        let &at = self.index.get(object)?;
        Some((&self.rows[at], &self.values[at]))
    }

    /// Moves the values out.
    pub fn lend(&mut self) -> Vec<T> {
        std::mem::take(&mut self.values)
    }

    /// Takes back what [`Table::lend`] gave.
    pub fn restore(&mut self, values: Vec<T>) {
        debug_assert_eq!(values.len(), self.rows.len(), "the cache was changed while its values were lent");
        self.values = values;
    }
}

#[cfg(test)]
mod tests {
    use buffer_core::snapshot::ObjectKey;
    use similar_asserts::assert_eq;

    use super::*;

    fn object(name: &str) -> ObjectRef {
        ObjectRef::cluster(Kind::Claim, name)
    }

    fn seen(name: &str, version: u64, value: u32) -> Observed<u32> {
        Observed { object: object(name), version, owners: Vec::new(), protected_until: None, value }
    }

    struct Fixture {
        table: Table<u32>,
        now: Instant,
    }

    impl Fixture {
        fn new() -> Self {
            Self { table: Table::default(), now: Instant::now() }
        }

        fn apply(&mut self, op: Op<u32>) -> bool {
            self.table.apply(op, self.now, |_| true)
        }

        fn names(&self) -> Vec<&str> {
            let mut names: Vec<_> = self.table.rows.iter().map(|row| row.object.key.name.as_str()).collect();
            names.sort_unstable();
            names
        }
    }

    #[test]
    fn the_echo_of_an_own_write_changes_nothing() {
        let mut f = Fixture::new();
        assert!(f.apply(Op::Applied(seen("a", 1, 10))));
        assert!(f.apply(Op::Answered(seen("a", 5, 11))));
        assert!(!f.apply(Op::Applied(seen("a", 5, 11))), "echo");
        assert!(!f.apply(Op::Applied(seen("a", 3, 10))), "older than what is known");
        assert!(f.apply(Op::Applied(seen("a", 6, 12))));
        assert!(!f.apply(Op::Answered(seen("a", 5, 11))), "a late answer");
        assert_eq!(f.table.values(), [12]);
    }

    #[test]
    fn versions_move_on_without_a_change() {
        let mut f = Fixture::new();
        f.apply(Op::Applied(seen("a", 1, 10)));
        assert!(!f.apply(Op::Applied(seen("a", 2, 10))));
        assert_eq!(f.table.get(&object("a")).map(|(row, _)| row.version), Some(2));
    }

    #[test]
    fn a_created_object_survives_a_list_that_is_older() {
        let mut f = Fixture::new();
        assert!(f.apply(Op::Answered(seen("new", 9, 1))));
        f.apply(Op::Applied(seen("old", 1, 1)));
        f.apply(Op::Init(Kind::Claim));
        assert!(f.apply(Op::InitDone(Kind::Claim)), "old is gone");
        assert_eq!(f.names(), ["new"]);
        f.now += UNSEEN;
        f.table.expire(f.now);
        assert_eq!(f.names(), [] as [&str; 0]);
    }

    #[test]
    fn an_object_that_the_watch_has_shown_does_not_expire() {
        let mut f = Fixture::new();
        f.apply(Op::Answered(seen("a", 9, 1)));
        f.apply(Op::Applied(seen("a", 9, 1)));
        f.now += UNSEEN;
        f.table.expire(f.now);
        assert_eq!(f.names(), ["a"]);
        f.apply(Op::Init(Kind::Claim));
        f.apply(Op::Listed(seen("b", 10, 1)));
        assert!(f.apply(Op::InitDone(Kind::Claim)));
        assert_eq!(f.names(), ["b"]);
    }

    #[test]
    fn a_list_of_one_kind_leaves_the_others() {
        let mut f = Fixture::new();
        f.apply(Op::Applied(seen("a", 1, 1)));
        f.apply(Op::Init(Kind::Deployment));
        assert!(!f.apply(Op::InitDone(Kind::Deployment)));
        assert_eq!(f.names(), ["a"]);
    }

    #[test]
    fn a_late_answer_brings_nothing_back() {
        let mut f = Fixture::new();
        f.apply(Op::Applied(seen("a", 5, 1)));
        assert!(f.apply(Op::Deleted(object("a"), 8)));
        assert!(!f.apply(Op::Answered(seen("a", 7, 2))));
        assert_eq!(f.names(), [] as [&str; 0]);
        assert!(f.apply(Op::Answered(seen("a", 12, 3))), "a new object of the same name");
        assert!(!f.apply(Op::Deleted(object("a"), 8)), "the end of the old one");
        assert_eq!(f.names(), ["a"]);
    }

    #[test]
    fn a_prediction_gives_way_to_what_is_real() {
        let mut f = Fixture::new();
        assert!(f.apply(Op::Predicted(object("a"), 1)));
        assert!(!f.apply(Op::Answered(seen("a", 5, 1))), "as predicted");
        assert!(!f.apply(Op::Retracted(object("a"))), "it is real by now");
        assert!(!f.apply(Op::Predicted(object("a"), 7)));
        assert_eq!(f.table.values(), [1]);
    }

    #[test]
    fn a_failed_creation_is_taken_back() {
        let mut f = Fixture::new();
        f.apply(Op::Applied(seen("z", 1, 26)));
        f.apply(Op::Predicted(object("a"), 1));
        f.apply(Op::Predicted(object("b"), 2));
        assert!(f.apply(Op::Retracted(object("a"))));
        assert_eq!(f.names(), ["b", "z"]);
        assert_eq!(f.table.get(&object("b")).map(|(_, value)| *value), Some(2));
    }

    #[test]
    fn only_what_matters_counts() {
        let (mut table, now) = (Table::default(), Instant::now());
        let matters = |value: &u32| *value > 10;
        assert!(!table.apply(Op::Applied(seen("a", 1, 1)), now, matters));
        assert!(!table.apply(Op::Applied(seen("a", 2, 2)), now, matters));
        assert!(table.apply(Op::Applied(seen("a", 3, 11)), now, matters));
        assert!(table.apply(Op::Applied(seen("a", 4, 3)), now, matters));
        assert!(!table.apply(Op::Deleted(object("a"), 5), now, matters));
    }

    #[test]
    fn protections_end_in_time() {
        let mut f = Fixture::new();
        let end: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        f.apply(Op::Applied(Observed { protected_until: Some(end), ..seen("a", 1, 1) }));
        assert_eq!(f.table.next_end_of_protection(), Some(end));
        f.table.end_protection(end, |value| *value = 0);
        assert_eq!((f.table.values(), f.table.next_end_of_protection()), (&[0][..], None));
    }

    #[test]
    fn versions_are_numbers() {
        assert_eq!((version(Some("41")), version(Some("x")), version(None)), (41, 0, 0));
        assert_eq!(
            object("a"),
            ObjectRef::new(Kind::Claim, ObjectKey { name: "a".to_owned(), ..ObjectKey::default() })
        );
    }
}
