//! The rules of the election: no clock, no requests.

use std::time::Duration;

use tokio::time::Instant;

/// The times of an election. Each must be longer than the next one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Timing {
    /// How long others wait for a leader that renews its lease no more.
    pub lease: Duration,
    /// How long a leader goes on without a renewal.
    pub deadline: Duration,
    /// Time between two renewals, between two attempts after a failure, and for one request.
    pub retry: Duration,
}

/// What is read from the Lease object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    /// Resource version: two records of the same version are the same.
    pub version: String,
    /// Identity of the holder; empty: nobody.
    pub holder: String,
    /// How long the holder wants to be waited for.
    pub lease: Duration,
}

/// What to do next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// Read the lease.
    Read,
    /// Create the lease, with this process as its holder.
    Create,
    /// Write the lease in the version that was seen last, with this process as its holder.
    Write,
    /// Do nothing until then, unless the lease changes.
    Wait(Instant),
    /// Stop for ever: the lease is, or may soon be, another's.
    Lost,
}

/// What is known of the lease.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Lease {
    /// Nothing yet, or what was known is out of date.
    Unknown,
    /// There is none.
    Missing,
    /// It is there.
    Found(Record),
}

/// The state of one process in the election.
#[derive(Clone, Debug)]
pub struct Elector {
    identity: String,
    timing: Timing,
    lease: Lease,
    /// Until when another's claim to the lease has to be respected.
    respected_until: Option<Instant>,
    /// The last record whose change was timed.
    timed: Option<Record>,
    /// When the last successful renewal was sent.
    renewed: Option<Instant>,
    /// Not before this time is the next request sent.
    next: Option<Instant>,
}

impl Elector {
    /// Knows nothing yet.
    pub fn new(identity: String, timing: Timing) -> Self {
        Self {
            identity,
            timing,
            lease: Lease::Unknown,
            respected_until: None,
            timed: None,
            renewed: None,
            next: None,
        }
    }

    /// Until when this process may write, if it ever was the leader.
    pub fn leads_until(&self) -> Option<Instant> {
        self.renewed.map(|renewed| renewed + self.timing.deadline)
    }

    /// Whether this process is the leader, in its own belief.
    #[cfg(test)]
    pub fn leads(&self, now: Instant) -> bool {
        self.leads_until().is_some_and(|until| now < until)
    }

    /// The version that a write names.
    #[cfg(test)]
    pub fn version(&self) -> Option<&str> {
        match &self.lease {
            Lease::Found(record) => Some(&record.version),
            Lease::Unknown | Lease::Missing => None,
        }
    }

    /// What to do now.
    pub fn step(&self, now: Instant) -> Step {
        let until = self.leads_until();
        if until.is_some_and(|until| until <= now) || until.is_some() && self.is_anothers() {
            return Step::Lost;
        }
        if let Some(next) = self.next.filter(|&next| now < next) {
            return Step::Wait(until.map_or(next, |until| next.min(until)));
        }
        match (&self.lease, self.respected_until) {
            (Lease::Unknown, _) => Step::Read,
            (_, Some(respected)) if now < respected => Step::Wait(respected),
            (Lease::Missing, _) => Step::Create,
            (Lease::Found(_), _) => Step::Write,
        }
    }

    fn is_anothers(&self) -> bool {
        matches!(&self.lease, Lease::Found(record) if record.holder != self.identity)
    }

    /// The lease was read, or a watch has shown it; `None`: there is none.
    pub fn seen(&mut self, record: Option<Record>, now: Instant) {
        let Some(record) = record else {
            // whoever held it may not know yet: what was to be respected still is
            self.lease = Lease::Missing;
            return;
        };
        if self.timed.as_ref() != Some(&record) {
            let another = !record.holder.is_empty() && record.holder != self.identity;
            let lease = if record.lease.is_zero() { self.timing.lease } else { record.lease };
            self.respected_until = another.then(|| now + lease);
            self.timed = Some(record.clone());
        }
        self.lease = Lease::Found(record);
    }

    /// The lease was written, by a request that was sent at `sent`.
    pub fn written(&mut self, record: Record, sent: Instant, now: Instant) {
        self.seen(Some(record), now);
        self.renewed = Some(sent);
        self.next = Some(sent + self.timing.retry);
    }

    /// The lease has changed, came or went before it could be written: it is looked at anew, at once.
    pub fn outdated(&mut self) {
        self.lease = Lease::Unknown;
        self.next = None;
    }

    /// A request has failed, or was not answered in time: it may or may not have been carried out.
    pub fn failed(&mut self, now: Instant) {
        self.lease = Lease::Unknown;
        self.next = Some(now + self.timing.retry);
    }
}
