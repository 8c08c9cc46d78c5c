//! The fake cloud as a process of its own.

use std::io::IsTerminal;

use anyhow::Context;
use buffer_client::stop_at_signal;
use clap::Parser;
use fake_cloud::Config;
use tracing_subscriber::EnvFilter;

/// Turns NodeClaims into nodes without a cloud
///
/// Example: fake-cloud --kubeconfig admin.conf --admin-port 8090
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    config: Config,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr).init();
    let stop = stop_at_signal().context("waiting for signals")?;
    fake_cloud::run(cli.config, stop).await.context("the cloud has ended")
}
