//! What ends a run early: signals and the deadline.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use conformance_report::model::{Incident, IncidentKind};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Why a run was cut short, if it was.
#[derive(Clone, Debug, Default)]
pub struct Ended(Arc<Mutex<Option<Incident>>>);

impl Ended {
    /// The incident for the report.
    #[must_use]
    pub fn incident(&self) -> Option<Incident> {
        self.0.lock().ok()?.clone()
    }

    fn set(&self, kind: IncidentKind, message: &str) {
        if let Ok(mut incident) = self.0.lock() {
            *incident = Some(Incident { kind, message: message.to_owned() });
        }
    }
}

/// Cancels at the first SIGINT or SIGTERM or at the deadline; a second signal ends the process at once.
#[must_use]
pub fn watch(cancel: &CancellationToken, deadline: Option<Duration>) -> Ended {
    let ended = Ended::default();
    let (told, cancel) = (ended.clone(), cancel.clone());
    tokio::spawn(async move {
        let (Ok(mut interrupt), Ok(mut terminate)) =
            (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
        else {
            tracing::error!("signals can't be watched; an interrupted run will not write its report");
            return;
        };
        let timer = async {
            match deadline {
                Some(deadline) => tokio::time::sleep(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => told.set(IncidentKind::Interrupted, "interrupted by SIGINT"),
            _ = terminate.recv() => told.set(IncidentKind::Terminated, "terminated by SIGTERM"),
            () = timer => told.set(IncidentKind::Deadline, "the deadline of the run was reached"),
        }
        tracing::warn!("ending in good order; a second signal ends at once");
        cancel.cancel();
        tokio::select! {
            _ = interrupt.recv() => std::process::exit(130),
            _ = terminate.recv() => std::process::exit(143),
        }
    });
    ended
}
