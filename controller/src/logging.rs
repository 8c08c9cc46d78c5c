//! Logs: to stderr, as text or JSON.

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, filter::LevelFilter, util::TryInitError};

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Sends logs to stderr. `RUST_LOG` filters them; the default level is info.
///
/// Fails where the process already has a logger.
pub fn init_logging(format: LogFormat) -> Result<(), TryInitError> {
    use tracing_subscriber::util::SubscriberInitExt;

    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).from_env_lossy();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Text => builder.finish().try_init(),
        LogFormat::Json => builder.json().finish().try_init(),
    }
}
