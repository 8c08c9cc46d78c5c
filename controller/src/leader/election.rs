//! Reads, watches and writes the Lease.

use std::time::Duration;

use buffer_client::chain;
use futures::{StreamExt, stream::BoxStream};
use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{
    Api,
    api::PostParams,
    runtime::{WatchStreamExt, watcher},
};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    Fence, Timing,
    elector::{Elector, Record, Step},
};
use crate::{error::request_text, metrics::Metrics, write::MANAGER};

/// A name that no other process has: the given one with a random part.
pub fn identity(name: &str) -> String {
    format!("{name}_{}", uuid::Uuid::new_v4())
}

/// An election that this process takes part in. Dropping it ends that, without a release.
#[derive(Debug)]
pub struct Election {
    task: Option<JoinHandle<Candidate>>,
    stop: CancellationToken,
}

impl Election {
    /// Takes part under the name `identity`, on the Lease `name`.
    pub fn start(
        api: Api<Lease>,
        name: &str,
        identity: &str,
        timing: Timing,
        metrics: Metrics,
    ) -> (Self, Fence) {
        let (until, fence) = Fence::new();
        let candidate = Candidate {
            api,
            name: name.to_owned(),
            identity: identity.to_owned(),
            timing,
            elector: Elector::new(identity.to_owned(), timing),
            last: None,
            until,
            metrics,
        };
        let stop = CancellationToken::new();
        let task = tokio::spawn(candidate.run(stop.clone()));
        (Self { task: Some(task), stop }, fence)
    }

    /// Waits until this process has lost the lease: it may not write any more, and never will again.
    pub async fn lost(&mut self) {
        if let Some(task) = &mut self.task {
            // a panic has closed the fence too
            if let Err(panic) = task.await {
                warn!(error = chain(&panic), "the election has ended");
            }
            self.task = None;
        } else {
            std::future::pending::<()>().await;
        }
    }

    /// Closes the fence and gives the lease back, so that somebody else takes over at once. Only to be called when
    /// no write is on its way.
    pub async fn release(mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            match task.await {
                Ok(candidate) => candidate.release().await,
                Err(panic) => warn!(error = chain(&panic), "the election has ended"),
            }
        }
    }
}

impl Drop for Election {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// What the task of an election knows.
#[derive(Debug)]
struct Candidate {
    api: Api<Lease>,
    name: String,
    identity: String,
    timing: Timing,
    elector: Elector,
    /// The lease as it was seen last.
    last: Option<Lease>,
    /// Opens and closes the fence.
    until: watch::Sender<Option<Instant>>,
    metrics: Metrics,
}

type Watch = BoxStream<'static, watcher::Result<watcher::Event<Lease>>>;

impl Candidate {
    /// Takes part until the lease is lost or `stop` is cancelled; then the fence is closed.
    async fn run(mut self, stop: CancellationToken) -> Self {
        let mut watch = Some(self.watch());
        loop {
            match self.elector.step(Instant::now()) {
                Step::Read => self.read().await,
                Step::Create => self.write(true).await,
                Step::Write => self.write(false).await,
                Step::Wait(until) => tokio::select! {
                    biased;
                    // not while a request is on its way: what it does has to be known
                    () = stop.cancelled() => break,
                    () = sleep_until(until) => {}
                    event = next(&mut watch) => self.shown(event),
                },
                Step::Lost => {
                    warn!(identity = self.identity, "the lease is lost");
                    self.metrics.error("lease_lost");
                    break;
                }
            }
            if self.elector.leads_until().is_some() {
                // a leader learns from the answers to its renewals
                watch = None;
            }
        }
        self.until.send_replace(None);
        self.metrics.leader(false);
        self
    }

    fn watch(&self) -> Watch {
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        watcher(self.api.clone(), config).default_backoff().boxed()
    }

    fn shown(&mut self, event: watcher::Result<watcher::Event<Lease>>) {
        match event {
            Ok(watcher::Event::Apply(lease) | watcher::Event::InitApply(lease)) => self.seen(Some(lease)),
            Ok(watcher::Event::Delete(_)) => self.seen(None),
            Ok(watcher::Event::Init | watcher::Event::InitDone) => {}
            Err(error) => {
                self.metrics.error("lease");
                warn!(error = chain(&error), "watching the lease failed, will be repeated");
            }
        }
    }

    fn seen(&mut self, lease: Option<Lease>) {
        let seen = lease.as_ref().map(record);
        let holder = seen.as_ref().map(|record| record.holder.as_str());
        if holder != self.last.as_ref().map(record).as_ref().map(|record| record.holder.as_str()) {
            info!(holder, "the lease has changed hands");
        }
        self.elector.seen(seen, Instant::now());
        self.last = lease;
    }

    async fn read(&mut self) {
        match timeout(self.timing.retry, self.api.get_opt(&self.name)).await {
            Ok(Ok(lease)) => self.seen(lease),
            Ok(Err(error)) => self.failed("reading", &request_text(&error)),
            Err(_) => self.failed("reading", "no answer"),
        }
    }

    async fn write(&mut self, create: bool) {
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let lease = self.mine(create);
        let sent = Instant::now();
        let request = async {
            if create {
                self.api.create(&params, &lease).await
            } else {
                self.api.replace(&self.name, &params, &lease).await
            }
        };
        match timeout(self.timing.retry, request).await {
            Ok(Ok(lease)) => {
                let first = self.elector.leads_until().is_none();
                self.elector.written(record(&lease), sent, Instant::now());
                self.last = Some(lease);
                self.until.send_replace(self.elector.leads_until());
                if first {
                    info!(identity = self.identity, "this process is the leader");
                    self.metrics.leader(true);
                }
            }
            // somebody was quicker
            Ok(Err(kube::Error::Api(status))) if status.code == 409 || status.code == 404 && !create => {
                self.elector.outdated();
            }
            Ok(Err(error)) => self.failed("writing", &request_text(&error)),
            Err(_) => self.failed("writing", "no answer"),
        }
    }

    fn failed(&mut self, doing: &'static str, error: &str) {
        self.metrics.error("lease");
        warn!(doing, error, "the lease could not be used, will be repeated");
        self.elector.failed(Instant::now());
    }

    /// The lease as it is to be written; what others have put there stays.
    fn mine(&self, create: bool) -> Lease {
        let now = MicroTime(Timestamp::now());
        let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
        let mut lease = self.last.clone().filter(|_| !create).unwrap_or(Lease { metadata, spec: None });
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        if spec.holder_identity.as_ref() != Some(&self.identity) {
            spec.holder_identity = Some(self.identity.clone());
            spec.acquire_time = Some(now.clone());
            spec.lease_transitions =
                Some(spec.lease_transitions.map_or(0, |before| before.saturating_add(1)));
        }
        spec.renew_time = Some(now);
        spec.lease_duration_seconds = Some(self.timing.lease.as_secs().try_into().unwrap_or(i32::MAX));
        lease
    }

    /// Gives the lease back if it is this process's. If that fails, others wait for it to run out.
    async fn release(self) {
        let Some(mut lease) = self.last.filter(|_| self.elector.leads_until().is_some()) else { return };
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        if spec.holder_identity.as_ref() != Some(&self.identity) {
            return;
        }
        // the API server wants a positive duration
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        match timeout(self.timing.retry, self.api.replace(&self.name, &params, &lease)).await {
            Ok(Ok(_)) => info!("the lease is given back"),
            Ok(Err(error)) => warn!(error = request_text(&error), "the lease could not be given back"),
            Err(_) => warn!(error = "no answer", "the lease could not be given back"),
        }
    }
}

/// The next event of a watch; never, if there is none.
async fn next(watch: &mut Option<Watch>) -> watcher::Result<watcher::Event<Lease>> {
    if let Some(events) = watch
        && let Some(event) = events.next().await
    {
        return event;
    }
    std::future::pending().await
}

fn record(lease: &Lease) -> Record {
    let spec = lease.spec.as_ref();
    let seconds = spec.and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
    Record {
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
        holder: spec.and_then(|spec| spec.holder_identity.clone()).unwrap_or_default(),
        lease: Duration::from_secs(seconds.try_into().unwrap_or_default()),
    }
}
