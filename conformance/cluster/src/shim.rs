//! The step between the supervisor and a child: makes the kernel kill the child when the supervisor dies.

use std::{convert::Infallible, ffi::OsString, os::unix::process::CommandExt, process::Command};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::Error;

/// The hidden subcommand under which the caller's binary offers [`run`]: `BINARY exec-shim PARENT_PID -- ARGV...`.
pub const SUBCOMMAND: &str = "exec-shim";

/// Becomes the command in `argv`, which then dies with the process `parent`, whatever ends that. Returns only when that
/// is not possible.
pub fn run(parent: u32, argv: &[OsString]) -> Result<Infallible, Error> {
    let Some((program, arguments)) = argv.split_first() else {
        return Err(Error::Refused("no command to run".to_owned()));
    };
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Error::io("tying to its parent", program)(error.into()))?;
    // It may have died before the line above: then no signal comes.
    let actual = getppid().map_or(0, |pid| pid.as_raw_nonzero().get().cast_unsigned());
    if actual != parent {
        return Err(Error::Orphaned);
    }
    Err(Error::io("starting", program)(Command::new(program).args(arguments).exec()))
}
