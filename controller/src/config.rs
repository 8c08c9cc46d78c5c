//! Settings of the controller, as command-line arguments.

use std::{path::PathBuf, str::FromStr};

use buffer_core::plan::Settings;

/// Settings of the controller.
#[derive(Clone, Debug, Default, clap::Args)]
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
    use rstest::rstest;

    use super::*;

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
