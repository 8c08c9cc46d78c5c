//! The commands that an implementation declares.

use std::{ffi::OsStr, process::Stdio, time::Duration};

use tokio::{process::Command, time::timeout};

use super::{context::Shared, wait::seconds};
use crate::{implementation::Hook, waits::Wait};

/// Runs a declared hook to its end; `None` where none is declared. Says what went wrong, with the last line that it wrote.
pub async fn run(shared: &Shared, hook: Hook, pool: Option<&str>) -> Option<Result<(), String>> {
    let command = shared.implementation.hooks.get(&hook)?;
    let kubeconfig = shared.kubeconfig.as_deref().map(|path| ("KUBECONFIG", path.as_os_str()));
    let pool = pool.map(|name| ("BUFCONF_POOL", OsStr::new(name)));
    let settings = kubeconfig.into_iter().chain(pool);
    Some(execute(command, settings, shared.waits.patience(Wait::Cleanup)).await)
}

async fn execute<'a>(
    command: &[String],
    settings: impl Iterator<Item = (&'a str, &'a OsStr)>,
    patience: Duration,
) -> Result<(), String> {
    let (program, arguments) = command.split_first().ok_or("the command is empty")?;
    let mut command = Command::new(program);
    command.args(arguments).envs(settings).stdin(Stdio::null()).kill_on_drop(true);
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

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::settings(&["sh", "-c", "test \"$BUFCONF_POOL\" = p"], Ok(()))]
    #[case::last_line(
        &["sh", "-c", "echo first >&2; echo last >&2; exit 3"],
        Err("sh failed (exit status: 3): last")
    )]
    #[case::silent(&["sh", "-c", "exit 1"], Err("sh failed (exit status: 1): it said nothing"))]
    #[case::empty(&[], Err("the command is empty"))]
    #[case::too_long(&["sleep", "60"], Err("sleep did not end within 0.5 s"))]
    #[tokio::test]
    async fn hooks(#[case] command: &[&str], #[case] expected: Result<(), &str>) {
        let command: Vec<_> = command.iter().map(|&word| word.to_owned()).collect();
        let settings = [("BUFCONF_POOL", OsStr::new("p"))].into_iter();
        let ran = execute(&command, settings, Duration::from_millis(500)).await;
        assert_eq!(ran, expected.map_err(str::to_owned));
    }
}
