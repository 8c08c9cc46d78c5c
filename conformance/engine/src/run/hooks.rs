//! The commands that an implementation declares.

use std::{process::Stdio, time::Duration};

use tokio::{process::Command, time::timeout};

use super::{context::Shared, wait::seconds};
use crate::{implementation::Hook, waits::Wait};

/// Runs a declared hook to its end; `None` where none is declared. Says what went wrong, with the last line that it wrote.
pub async fn run(shared: &Shared, hook: Hook, pool: Option<&str>) -> Option<Result<(), String>> {
    let command = shared.implementation.hooks.get(&hook)?;
    Some(execute(shared, command, pool).await)
}

async fn execute(shared: &Shared, command: &[String], pool: Option<&str>) -> Result<(), String> {
    let (program, arguments) = command.split_first().ok_or("the command is empty")?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    if let Some(kubeconfig) = &shared.kubeconfig {
        command.env("KUBECONFIG", kubeconfig);
    }
    if let Some(pool) = pool {
        command.env("BUFCONF_POOL", pool);
    }
    let patience: Duration = shared.waits.patience(Wait::Cleanup);
    let output = match timeout(patience, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(format!("{program} could not be started: {error}")),
        Err(_) => return Err(format!("{program} did not end within {}", seconds(patience))),
    };
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    Err(format!("{program} failed ({}): {said}", output.status))
}
