//! Ties a test process to its test runner, and a run's cluster to both.

use std::process;

use rustix::process::getppid;

use crate::{Error, process as handles};

/// Set by nextest for every test process of a run.
const RUN_ID: &str = "NEXTEST_RUN_ID";

/// The key that all processes of this run share, and no other run: nextest's run id, else one made from this process.
#[must_use]
pub fn run_key() -> String {
    match nextest_run() {
        Some(id) => id,
        None => format!("pid-{}", process::id()),
    }
}

/// The process whose end ends this run's clusters: nextest, else this process itself.
#[must_use]
pub fn owner_pid() -> u32 {
    match nextest_run() {
        Some(_) => parent(),
        None => process::id(),
    }
}

fn nextest_run() -> Option<String> {
    std::env::var(RUN_ID).ok().filter(|id| !id.is_empty())
}

fn parent() -> u32 {
    getppid().map_or(0, |pid| pid.as_raw_nonzero().get().cast_unsigned())
}

/// Ends this process, with exit code 1, as soon as nextest is gone, by whatever signal. Does nothing outside of nextest.
/// To be called before anything else.
pub fn die_with_parent() -> Result<(), Error> {
    if nextest_run().is_none() {
        return Ok(());
    }
    let before = parent();
    let failed = |error| Error::io("watching", "the test runner")(error);
    // First the handle, then the check: in between the parent may have died and its number gone to another process.
    let handle = handles::handle(before).map_err(failed)?;
    let Some(handle) = handle.filter(|_| parent() == before) else {
        return Err(Error::Orphaned);
    };
    std::thread::spawn(move || {
        // When even waiting is impossible, staying alive unwatched would be worse.
        if let Err(error) = handles::wait(&handle, None) {
            tracing::error!(%error, "can't watch the test runner");
        }
        process::exit(1)
    });
    Ok(())
}
