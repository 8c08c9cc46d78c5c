//! The reference controller as a program of its own.

use std::process::ExitCode;

use anyhow::Context;
use buffer_client::{chain, stop_at_signal};
use buffer_controller::{Config, LogFormat, init_logging, run};
use clap::Parser;

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
        let shutdown = stop_at_signal().context("waiting for signals")?;
        Ok(run(cli.config, shutdown).await?)
    })
}
