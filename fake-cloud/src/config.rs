//! Settings of the cloud.

use std::path::PathBuf;

use buffer_api::fake_node_class::Backend;

/// Settings of the cloud, as command-line arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Config {
    /// Kubeconfig of the cluster; without it the environment decides (KUBECONFIG, ~/.kube/config, in-cluster)
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Name of the cluster in provider ids, fake://NAME/UID; two clouds of different names leave each other's nodes alone
    #[arg(long, value_name = "NAME", default_value = "bufconf", value_parser = cluster_name)]
    pub cluster_name: String,

    /// Port on 127.0.0.1 for /livez and /readyz; without it nothing listens
    #[arg(long, value_name = "PORT")]
    pub admin_port: Option<u16>,

    /// What stands behind the nodes of a class that doesn't say: `hollow` or `kind`
    #[arg(long, value_name = "BACKEND", default_value = "hollow", value_parser = backend, env = "BUFCONF_BACKEND")]
    pub backend: Backend,

    /// The kind cluster that this is: its nodes are containers beside the control plane's
    #[arg(long, value_name = "NAME", env = "BUFCONF_KIND_CLUSTER")]
    pub kind_cluster: Option<String>,

    /// Folder for the log of each kind node that could not join
    #[arg(long, value_name = "DIR", env = "BUFCONF_JOIN_LOGS")]
    pub join_logs: Option<PathBuf>,

    /// Kind nodes that join at the same time
    #[arg(long, value_name = "COUNT", default_value = "3", value_parser = clap::value_parser!(u8).range(1..))]
    pub kind_joins: u8,

    /// Also be the kubelet of nodes that somebody else made and annotated with kwok.x-k8s.io/node=fake
    #[arg(long)]
    pub adopt_fake_nodes: bool,
}

fn backend(text: &str) -> Result<Backend, String> {
    match text {
        "hollow" => Ok(Backend::Hollow),
        "kind" => Ok(Backend::Kind),
        _ => Err("hollow or kind".to_owned()),
    }
}

fn cluster_name(text: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    if text.is_empty() || text.len() > 63 || !text.chars().all(allowed) {
        return Err("1 to 63 lower-case letters, digits, dashes and dots".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        config: Config,
    }

    #[test]
    fn arguments() {
        let cli =
            Cli::parse_from(["cloud", "--cluster-name", "one", "--admin-port", "8090", "--adopt-fake-nodes"]);
        assert_eq!(cli.config.cluster_name, "one");
        assert_eq!(cli.config.admin_port, Some(8090));
        assert!(cli.config.adopt_fake_nodes && cli.config.kubeconfig.is_none());
        assert!(Cli::try_parse_from(["cloud", "--cluster-name", "a/b"]).is_err());
        assert!(Cli::try_parse_from(["cloud", "--cluster-name", ""]).is_err());
    }
}
