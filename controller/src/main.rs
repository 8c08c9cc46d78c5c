//! The reference controller as a program of its own.

use std::process::ExitCode;

use anyhow::Context;
use buffer_client::chain;
use buffer_controller::{CancellationToken, Config, LogFormat, init_logging, run};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

/// The reference CapacityBuffer, NodePool and NodeClaim controllers.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    config: Config,
    /// How log lines look; RUST_LOG filters them.
    #[arg(long, value_enum, default_value_t)]
    log_format: LogFormat,
}

fn main() -> ExitCode {
    match start(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn start(cli: Cli) -> anyhow::Result<()> {
    init_logging(cli.log_format).context("setting up the log")?;
    let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
    runtime.block_on(async {
        let shutdown = CancellationToken::new();
        let mut term = signal(SignalKind::terminate()).context("waiting for signals")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("waiting for signals")?;
        let stop = shutdown.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = term.recv() => {}
                _ = interrupt.recv() => {}
            }
            stop.cancel();
        });
        Ok(run(cli.config, shutdown).await?)
    })
}
