//! The command line.

use std::{num::NonZeroUsize, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Tests whether an autoscaler implements the CapacityBuffer API (autoscaling.x-k8s.io) correctly.
#[derive(Debug, Parser)]
#[command(name = "bufconf", version, propagate_version = true, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Messages on stderr: more with each -v
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

const EXIT_CODES: &str = "\
Exit codes:
  0 conformant          1 violation           2 usage             3 incomplete
  4 nothing ran         5 environment         6 bad report        7 flaky
  8 leaks             124 deadline          130/143 interrupted, terminated";

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run scenarios against an implementation and report
    Run(RunArgs),
    /// List the scenarios
    List(ListArgs),
    /// Check scenario files
    #[command(after_help = "Example:\n  bufconf lint my-scenarios/")]
    Lint {
        /// Files or folders; folders named `broken` in them hold what must be refused, and are left out
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Look for what would keep a run from working on this machine, and name the fix
    #[command(after_help = "Example:\n  bufconf doctor --cluster kind")]
    Doctor {
        /// Where a run is meant to be
        #[arg(long, value_enum, default_value = "embedded", env = "BUFCONF_CLUSTER")]
        cluster: ClusterKind,
        /// Kubernetes minor
        #[arg(long, default_value = test_cluster::binaries::DEFAULT_MINOR)]
        kubernetes: String,
        /// Node image of kind
        #[arg(long, env = "BUFCONF_KIND_IMAGE", value_name = "IMAGE")]
        kind_image: Option<String>,
    },
    /// Read, check, join and compare reports
    #[command(subcommand)]
    Report(ReportCommand),
    /// Start, stop and show clusters to play with
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// The reference controller
    #[command(
        after_help = "Example:\n  bufconf controller --kubeconfig admin.kubeconfig --feature-gates CapacityBuffer=true"
    )]
    Controller(buffer_controller::Config),
    /// The fake cloud: turns NodeClaims into nodes
    #[command(after_help = "Example:\n  bufconf cloud --kubeconfig admin.kubeconfig")]
    Cloud(fake_cloud::Config),
    /// Print a JSON Schema
    #[command(after_help = "Example:\n  bufconf schema scenario > scenario.schema.json")]
    Schema {
        /// Of what
        kind: SchemaKind,
    },
    /// Become another program that dies with its parent
    #[command(name = "exec-shim", hide = true)]
    ExecShim {
        /// The parent
        parent: u32,
        /// The program and its arguments
        #[arg(last = true, required = true)]
        argv: Vec<std::ffi::OsString>,
    },
}

/// Where reports go unless told otherwise.
pub const DEFAULT_OUT: &str = "target/bufconf";

/// Name of a cluster unless told otherwise.
pub const DEFAULT_NAME: &str = "default";

/// What has a schema.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum SchemaKind {
    /// A scenario file
    Scenario,
    /// An implementation file
    Implementation,
    /// report.json
    Report,
}

/// Kinds of clusters.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum ClusterKind {
    /// etcd and the Kubernetes servers as processes on loopback, hollow nodes
    Embedded,
    /// A kind cluster: nodes are containers with real kubelets
    Kind,
    /// Any kubeconfig of a cluster that is marked disposable
    Existing,
}

/// `bufconf run`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  bufconf run                                          the whole suite on an embedded cluster
  bufconf run zero-node-baseline CB-RET-002            two scenarios
  bufconf run --cluster existing --implementation my.yaml --out results")]
pub struct RunArgs {
    /// Scenarios by name or id; all when none is named
    pub scenarios: Vec<String>,
    /// Where to run
    #[arg(long, value_enum, default_value = "embedded", env = "BUFCONF_CLUSTER")]
    pub cluster: ClusterKind,
    /// `reference`, or the path of an implementation file [default: reference, on an embedded cluster]
    #[arg(long)]
    pub implementation: Option<String>,
    /// Folder of users' own scenarios, reported apart and never part of the verdict
    #[arg(long, value_name = "DIR")]
    pub scenarios_dir: Option<PathBuf>,
    /// Folder of the report
    #[arg(long, default_value = DEFAULT_OUT)]
    pub out: PathBuf,
    /// Kubeconfig of an existing cluster; one that is missing or makes no sense is wrong usage (exit code 2), a server that
    /// does not answer is the environment's fault (5)
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// The existing cluster may be wrecked, though nothing in it says so
    #[arg(long)]
    pub disposable: bool,
    /// Kubernetes minor of the embedded or kind cluster
    #[arg(long, default_value = test_cluster::binaries::DEFAULT_MINOR)]
    pub kubernetes: String,
    /// Node image of kind; the one that ci/kind-node/build has made, else the published one when absent
    #[arg(long, env = "BUFCONF_KIND_IMAGE", value_name = "IMAGE")]
    pub kind_image: Option<String>,
    /// Control planes side by side; by the machine's cores and memory when absent, one of kind
    #[arg(long)]
    pub planes: Option<usize>,
    /// Scenarios at once
    #[arg(long, default_value = "8")]
    pub jobs: NonZeroUsize,
    /// Watch longer (or shorter) than the wait table says
    #[arg(long, default_value_t = 1.0)]
    pub time_factor: f64,
    /// Patience of one wait, as NAME=DURATION
    #[arg(long = "wait", value_name = "NAME=DURATION")]
    pub waits: Vec<String>,
    /// End the run after this time and report what there is
    #[arg(long, value_parser = conformance_engine::waits::parse_duration)]
    pub deadline: Option<Duration>,
    /// Show what would run, and run nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// `bufconf list`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  bufconf list\n  bufconf list --format json")]
pub struct ListArgs {
    /// Scenarios by name or id; all when none is named
    pub scenarios: Vec<String>,
    /// `reference`, or the path of an implementation file
    #[arg(long, default_value = "reference")]
    pub implementation: String,
    /// Folder of users' own scenarios
    #[arg(long, value_name = "DIR")]
    pub scenarios_dir: Option<PathBuf>,
    /// List the requirement rows and the scenarios that judge them
    #[arg(long, conflicts_with = "scenarios")]
    pub coverage: bool,
    /// Form of the list
    #[arg(long, value_enum, default_value = "table")]
    pub format: ListFormat,
}

/// Forms of the list.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ListFormat {
    /// For people
    Table,
    /// For programs
    Json,
}

/// `bufconf report …`.
#[derive(Debug, Subcommand)]
pub enum ReportCommand {
    /// Write junit.xml, index.html, summary.md and badge.json of a report, and print its table
    #[command(after_help = "Example:\n  bufconf report render target/bufconf/report.json --out public")]
    Render {
        /// report.json
        report: PathBuf,
        /// Folder of the files
        #[arg(long, default_value = DEFAULT_OUT)]
        out: PathBuf,
    },
    /// Check that files are reports of the published format
    #[command(after_help = "Example:\n  bufconf report validate target/bufconf/report.json")]
    Validate {
        /// report.json, several
        #[arg(required = true)]
        reports: Vec<PathBuf>,
    },
    /// Check that what reports say of themselves follows from their entries
    #[command(after_help = "Example:\n  bufconf report verify somebody-elses/report.json")]
    Verify {
        /// report.json, several
        #[arg(required = true)]
        reports: Vec<PathBuf>,
    },
    /// Join the reports of shards to the one that a single run would have given; the exit code is the joined report's
    #[command(after_help = "Example:\n  bufconf report merge shard-*/report.json --out merged")]
    Merge {
        /// report.json of each shard
        #[arg(required = true)]
        reports: Vec<PathBuf>,
        /// Folder of the joined report
        #[arg(long, default_value = DEFAULT_OUT)]
        out: PathBuf,
    },
    /// Show in what several reports differ, and every violation, as Markdown; exit code 1 if there is anything to show
    #[command(after_help = "Example:\n  bufconf report diff reference/report.json karpenter/report.json")]
    Diff {
        /// report.json, several
        #[arg(required = true)]
        reports: Vec<PathBuf>,
    },
}

/// `bufconf cluster …`.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Start a cluster that stays until `cluster down`; the last line of stdout is the path of an admin kubeconfig
    #[command(after_help = "\
Example:
  export KUBECONFIG=$(bufconf cluster up --with reference | tail -1)
  kubectl get cb -A")]
    Up {
        /// Name of the cluster
        #[arg(long, default_value = DEFAULT_NAME)]
        name: String,
        /// Also start the processes of this implementation: `reference`, or the path of an implementation file
        #[arg(long, value_name = "IMPLEMENTATION")]
        with: Option<String>,
        /// Kubernetes minor
        #[arg(long, default_value = test_cluster::binaries::DEFAULT_MINOR)]
        kubernetes: String,
        /// `kind` makes a kind cluster of that name, or adopts the one that is there and leaves it in the end
        #[arg(long, value_enum, default_value = "embedded", env = "BUFCONF_CLUSTER")]
        cluster: ClusterKind,
        /// Node image of kind; the one that ci/kind-node/build has made, else the published one when absent
        #[arg(long, env = "BUFCONF_KIND_IMAGE", value_name = "IMAGE")]
        kind_image: Option<String>,
    },
    /// Stop a cluster and remove all of it
    #[command(after_help = "Example:\n  bufconf cluster down")]
    Down {
        /// Name of the cluster
        #[arg(long, default_value = DEFAULT_NAME)]
        name: String,
    },
    /// Kill processes of a cluster of ours and start them again, in this order
    #[command(after_help = "Example:\n  bufconf cluster restart cloud controller")]
    Restart {
        /// Kubeconfig of the cluster, as `cluster up` has printed it
        #[arg(long, env = "KUBECONFIG")]
        kubeconfig: PathBuf,
        /// Names as `cluster status` shows them
        #[arg(required = true)]
        processes: Vec<String>,
    },
    /// Show the clusters and their processes
    #[command(after_help = "Example:\n  bufconf cluster status")]
    Status {
        /// Name of the cluster; all when absent
        #[arg(long)]
        name: Option<String>,
    },
    /// Own one cluster: the supervisor
    #[command(hide = true)]
    Serve {
        /// Folder of the cluster, with its config.json
        dir: PathBuf,
    },
}
