//! Settings of the controller, as command-line arguments.

use std::{path::PathBuf, str::FromStr, time::Duration};

use buffer_core::plan::Settings;

use crate::{Error, leader::Timing};

/// Settings of the controller.
#[derive(Clone, Debug, clap::Args)]
pub struct Config {
    /// Kubeconfig file [default: $KUBECONFIG, then ~/.kube/config, then the cluster that this runs in].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Feature gates, such as `CapacityBuffer=true`.
    #[arg(
        long,
        env = "FEATURE_GATES",
        value_name = "GATE=BOOL,…",
        default_value = "",
        hide_default_value = true
    )]
    pub feature_gates: FeatureGates,
    /// Port on 127.0.0.1 that serves /livez, /readyz and /metrics; absent: none.
    #[arg(long, value_name = "PORT")]
    pub admin_port: Option<u16>,
    /// How one of several controllers is made the leader.
    #[command(flatten)]
    pub leader_election: LeaderElection,
}

/// How one of several controllers is made the leader: the only one that writes.
#[derive(Clone, Debug, clap::Args)]
pub struct LeaderElection {
    /// Write only while this process holds the lease. Turn it off only where there is one controller and never a second.
    #[arg(
        id = "leader_elect",
        long = "leader-elect",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = true,
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    pub enabled: bool,
    /// Namespace of the Lease [default: the one of the kubeconfig or of the pod].
    #[arg(
        id = "leader_elect_namespace",
        long = "leader-elect-namespace",
        env = "POD_NAMESPACE",
        value_name = "NAMESPACE"
    )]
    pub namespace: Option<String>,
    /// Name of the Lease.
    #[arg(
        id = "leader_elect_name",
        long = "leader-elect-name",
        value_name = "NAME",
        default_value = "buffer-controller"
    )]
    pub name: String,
    /// Beginning of this process's name as a holder; a random part follows.
    #[arg(
        id = "leader_elect_identity",
        long = "leader-elect-identity",
        env = "POD_NAME",
        value_name = "NAME",
        default_value = "buffer-controller"
    )]
    pub identity: String,
    /// Seconds that others wait for a leader that renews its lease no more.
    #[arg(
        id = "leader_elect_lease_duration",
        long = "leader-elect-lease-duration",
        value_name = "SECONDS",
        default_value_t = 10
    )]
    pub lease_duration: u16,
    /// Seconds after the last renewal in which a leader still writes.
    #[arg(
        id = "leader_elect_renew_deadline",
        long = "leader-elect-renew-deadline",
        value_name = "SECONDS",
        default_value_t = 6
    )]
    pub renew_deadline: u16,
    /// Seconds between two renewals, and for one request.
    #[arg(
        id = "leader_elect_retry_period",
        long = "leader-elect-retry-period",
        value_name = "SECONDS",
        default_value_t = 2
    )]
    pub retry_period: u16,
}

impl LeaderElection {
    /// The times, if they make sense.
    pub fn timing(&self) -> Result<Timing, Error> {
        let seconds = |seconds: u16| Duration::from_secs(seconds.into());
        let timing = Timing {
            lease: seconds(self.lease_duration),
            deadline: seconds(self.renew_deadline),
            retry: seconds(self.retry_period),
        };
        if timing.retry.is_zero() || timing.retry >= timing.deadline || timing.deadline >= timing.lease {
            return Err(Error::Timing { timing });
        }
        Ok(timing)
    }
}

/// Which optional parts are on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FeatureGates {
    /// CapacityBuffers are resolved and provisioned. Off by default: then they are not even read.
    pub capacity_buffer: bool,
}

/// A text that is not a list of feature gates.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ParseFeatureGatesError {
    /// A gate that does not exist.
    #[error("unknown feature gate \"{0}\"; known: CapacityBuffer")]
    Unknown(String),
    /// A gate without `=true` or `=false`.
    #[error("feature gate \"{0}\" needs a value, true or false")]
    Value(String),
}

impl FromStr for FeatureGates {
    type Err = ParseFeatureGatesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut gates = Self::default();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let (name, value) = entry.split_once('=').map_or((entry, ""), |(n, v)| (n.trim(), v.trim()));
            let gate = match name {
                "CapacityBuffer" => &mut gates.capacity_buffer,
                _ => return Err(ParseFeatureGatesError::Unknown(name.to_owned())),
            };
            *gate = value
                .to_ascii_lowercase()
                .parse()
                .map_err(|_| ParseFeatureGatesError::Value(name.to_owned()))?;
        }
        Ok(gates)
    }
}

impl From<FeatureGates> for Settings {
    fn from(gates: FeatureGates) -> Self {
        Self { capacity_buffer: gates.capacity_buffer, search: false }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use rstest::rstest;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        config: Config,
    }

    #[rstest]
    #[case(&[], true)]
    #[case(&["--leader-elect"], true)]
    #[case(&["--leader-elect=true"], true)]
    #[case(&["--leader-elect=false"], false)]
    fn leaders_are_elected_unless_told_otherwise(#[case] arguments: &[&str], #[case] on: bool) {
        let cli = Cli::try_parse_from([&["x"], arguments].concat()).unwrap();
        assert_eq!(cli.config.leader_election.enabled, on);
    }

    #[rstest]
    #[case(10, 6, 2, true)]
    #[case(6, 6, 2, false)]
    #[case(10, 2, 2, false)]
    #[case(10, 6, 0, false)]
    fn times_that_could_make_two_leaders_are_refused(
        #[case] lease: u16,
        #[case] deadline: u16,
        #[case] retry: u16,
        #[case] good: bool,
    ) {
        let mut election = Cli::try_parse_from(["x"]).unwrap().config.leader_election;
        (election.lease_duration, election.renew_deadline, election.retry_period) = (lease, deadline, retry);
        assert_eq!(election.timing().is_ok(), good);
    }

    #[rstest]
    #[case("", false)]
    #[case("CapacityBuffer=true", true)]
    #[case("CapacityBuffer=True", true)]
    #[case(" CapacityBuffer = false ", false)]
    #[case("CapacityBuffer=false,CapacityBuffer=true,", true)]
    fn reads_gates(#[case] text: &str, #[case] on: bool) {
        assert_eq!(text.parse(), Ok(FeatureGates { capacity_buffer: on }));
    }

    #[rstest]
    #[case("CapacityBufer=true", "unknown feature gate \"CapacityBufer\"; known: CapacityBuffer")]
    #[case("capacitybuffer=true", "unknown feature gate \"capacitybuffer\"; known: CapacityBuffer")]
    #[case("CapacityBuffer", "feature gate \"CapacityBuffer\" needs a value, true or false")]
    #[case("CapacityBuffer=maybe", "feature gate \"CapacityBuffer\" needs a value, true or false")]
    fn refuses(#[case] text: &str, #[case] message: &str) {
        let error = text.parse::<FeatureGates>().map_err(|error| error.to_string());
        assert_eq!(error, Err(message.to_owned()));
    }
}
