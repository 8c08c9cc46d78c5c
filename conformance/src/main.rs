//! The bufconf command line: parses, calls, exits.

use std::process::ExitCode;

use bufconf::{
    cli::{Cli, Command},
    cluster, doctor,
    failure::Failure,
    list, report, run, signals,
};
use buffer_controller::LogFormat;
use clap::Parser;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match execute(cli) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("error: {:#}", failure.error);
            ExitCode::from(failure.code)
        }
    }
}

fn execute(cli: Cli) -> Result<u8, Failure> {
    match cli.command {
        // These set up logging of their own, as servers do.
        Command::Controller(config) => {
            return server(|stop| async { Ok(buffer_controller::run(config, stop).await?) });
        }
        Command::Cloud(config) => return server(|stop| async { Ok(fake_cloud::run(config, stop).await?) }),
        Command::ExecShim { parent, argv } => {
            let never = test_cluster::shim::run(parent, &argv)?;
            match never {}
        }
        _ => {}
    }
    log_to_stderr(cli.verbose);
    match cli.command {
        Command::Run(args) => runtime()?.block_on(run::execute(args)),
        Command::List(args) => list::list(&args).map(|()| 0),
        Command::Lint { paths } => list::lint(&paths).map(|()| 0),
        Command::Schema { kind } => list::schema(kind).map(|()| 0),
        Command::Doctor { cluster, kubernetes, kind_image } => {
            doctor::execute(cluster, &kubernetes, kind_image.as_deref())
        }
        Command::Report(command) => report::execute(command),
        Command::Cluster(command) => cluster::execute(command).map(|()| 0),
        Command::Controller(_) | Command::Cloud(_) | Command::ExecShim { .. } => Ok(0),
    }
}

/// Runs a server until SIGTERM or SIGINT.
fn server<F>(serve: impl FnOnce(CancellationToken) -> F) -> Result<u8, Failure>
where
    F: Future<Output = anyhow::Result<()>>,
{
    buffer_controller::init_logging(LogFormat::default()).map_err(Failure::environment)?;
    runtime()?
        .block_on(async {
            let stop = CancellationToken::new();
            let _ended = signals::watch(&stop, None);
            serve(stop).await
        })
        .map(|()| 0)
        .map_err(Failure::environment)
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Runtime::new().map_err(Failure::environment)
}

fn log_to_stderr(verbose: u8) {
    let level = ["warn", "info", "debug", "trace"][usize::from(verbose.min(3))];
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}
