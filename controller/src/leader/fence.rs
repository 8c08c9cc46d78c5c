//! Until when this process may write.

use buffer_client::Gate;
use futures::FutureExt;
use http::Method;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

/// A write that was not sent, or whose answer was not waited for, since this process is not the leader.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("this process is not the leader")]
pub struct Fenced;

/// Until when this process may write. Clones are of the same fence.
#[derive(Clone, Debug)]
pub struct Fence(watch::Receiver<Option<Instant>>);

impl Fence {
    /// A fence that is open until the time in the sender; `None`, or no sender any more: closed.
    pub fn new() -> (watch::Sender<Option<Instant>>, Self) {
        let (until, fence) = watch::channel(None);
        (until, Self(fence))
    }

    /// Waits until it is open.
    pub async fn opened(&mut self) {
        let opened = self.0.wait_for(|until| until.is_some_and(|until| Instant::now() < until)).await;
        if opened.is_err() {
            // nobody is left who could open it
            std::future::pending::<()>().await;
        }
    }

    /// Waits until it is closed; the first look is at the clock, not at a timer that may be late.
    pub async fn closed(mut self) {
        loop {
            let until = *self.0.borrow_and_update();
            let Some(until) = until.filter(|&until| Instant::now() < until) else { return };
            tokio::select! {
                () = sleep_until(until) => {}
                changed = self.0.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Keeps the writes of a client behind this fence.
    pub fn gate(&self) -> Gate {
        let fence = self.clone();
        Gate::new(move |method| {
            let reads = [Method::GET, Method::HEAD, Method::OPTIONS].contains(method);
            (!reads).then(|| fence.clone().closed().map(|()| Fenced.into()).boxed())
        })
    }
}
