//! What a supervisor is told to run.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use serde::{Deserialize, Serialize};

use crate::{
    Error,
    binaries::{Binaries, DEFAULT_MINOR},
    kind::{KindConfig, Tools},
    plane::STOP_ORDER,
};

/// One control plane and the processes on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ServeConfig {
    /// The Kubernetes minor: "1.36".
    pub kubernetes: String,
    /// A kind cluster in place of servers of our own.
    pub kind: Option<KindConfig>,
    /// CRD manifests as YAML, one or several documents each, installed before the cluster counts as ready.
    pub crds: Vec<String>,
    /// The subject's processes, started in this order once the control plane is ready.
    pub children: Vec<ChildConfig>,
    /// The process whose end ends the cluster; without one it stays until it is stopped.
    pub owner: Option<u32>,
    /// Folders of the run that are removed when the owner is gone: its leases, for example.
    pub ends_with_owner: Vec<PathBuf>,
}

impl Default for ServeConfig {
    fn default() -> Self {
        Self {
            kubernetes: DEFAULT_MINOR.to_owned(),
            kind: None,
            crds: Vec::new(),
            children: Vec::new(),
            owner: None,
            ends_with_owner: Vec::new(),
        }
    }
}

impl ServeConfig {
    /// Refuses children that could not be told apart, or from the servers, by their names, and those without a command.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let mut names: BTreeSet<&str> = STOP_ORDER.into();
        for child in &self.children {
            let name = child.name.as_str();
            let good = |c: char| c.is_ascii_alphanumeric() || c == '-';
            if name.is_empty() || !name.chars().all(good) {
                return Err(Error::Child { name: name.to_owned(), reason: "use letters, digits and '-'" });
            }
            if !names.insert(name) {
                return Err(Error::Child { name: name.to_owned(), reason: "the name is taken" });
            }
            if child.argv.is_empty() {
                return Err(Error::Child { name: name.to_owned(), reason: "it has no command" });
            }
        }
        Ok(())
    }
}

/// The content of `config.json` in a cluster's folder.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Job {
    pub(crate) ground: Ground,
    pub(crate) cluster: ServeConfig,
}

/// What the plane is made of.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Ground {
    /// Servers of our own.
    Servers(Binaries),
    /// A kind cluster.
    Kind(KindConfig, Tools),
}

/// A process of the subject: its controller, its cloud.
///
/// In `argv`, `env` values and `health`, `${KUBECONFIG}` stands for the path of an admin kubeconfig and `${PORT:name}` for
/// a free loopback port, the same one wherever the cluster's configuration says that name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChildConfig {
    /// What it is called in logs and requests.
    pub name: String,
    /// The command and its arguments.
    pub argv: Vec<String>,
    /// Variables on top of the supervisor's own.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// A URL that answers 200 once the process is ready; without one it counts as ready when it runs.
    #[serde(default)]
    pub health: Option<String>,
}

/// The placeholders' values.
#[derive(Debug)]
pub(crate) struct Values<'a> {
    pub(crate) kubeconfig: &'a str,
    pub(crate) ports: &'a BTreeMap<String, u16>,
}

impl ChildConfig {
    /// The names in its `${PORT:name}` placeholders.
    pub(crate) fn port_names(&self) -> impl Iterator<Item = &str> {
        self.argv.iter().chain(self.env.values()).chain(&self.health).flat_map(|text| {
            text.split("${PORT:").skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name)
        })
    }

    /// The same with all placeholders replaced.
    pub(crate) fn resolve(&self, values: &Values<'_>) -> Self {
        let replace = |text: &String| {
            let mut text = text.replace("${KUBECONFIG}", values.kubeconfig);
            for (name, port) in values.ports {
                text = text.replace(&format!("${{PORT:{name}}}"), &port.to_string());
            }
            text
        };
        Self {
            name: self.name.clone(),
            argv: self.argv.iter().map(replace).collect(),
            env: self.env.iter().map(|(key, value)| (key.clone(), replace(value))).collect(),
            health: self.health.as_ref().map(replace),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn placeholders_are_replaced_everywhere() {
        let child = ChildConfig {
            name: "cloud".to_owned(),
            argv: vec![
                "cloud".to_owned(),
                "--kubeconfig=${KUBECONFIG}".to_owned(),
                "--admin=:${PORT:a}".to_owned(),
            ],
            env: BTreeMap::from([("OTHER".to_owned(), "${PORT:b}/${PORT:a}".to_owned())]),
            health: Some("http://127.0.0.1:${PORT:a}/healthz".to_owned()),
        };
        assert_eq!(child.port_names().collect::<Vec<_>>(), ["a", "b", "a", "a"]);
        let ports = BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]);
        let resolved = child.resolve(&Values { kubeconfig: "/k", ports: &ports });
        assert_eq!(resolved.argv, ["cloud", "--kubeconfig=/k", "--admin=:1"]);
        assert_eq!(resolved.env["OTHER"], "2/1");
        assert_eq!(resolved.health.as_deref(), Some("http://127.0.0.1:1/healthz"));
    }

    #[rstest]
    #[case(&["cloud", "controller"], "cmd", None)]
    #[case(&["cloud", "cloud"], "cmd", Some("child process \"cloud\": the name is taken"))]
    #[case(&["etcd"], "cmd", Some("child process \"etcd\": the name is taken"))]
    #[case(&["../x"], "cmd", Some("child process \"../x\": use letters, digits and '-'"))]
    #[case(&["cloud"], "", Some("child process \"cloud\": it has no command"))]
    fn children_are_checked(#[case] names: &[&str], #[case] command: &str, #[case] wanted: Option<&str>) {
        let child = |name: &&str| ChildConfig {
            name: (*name).to_owned(),
            argv: command.split_whitespace().map(str::to_owned).collect(),
            env: BTreeMap::new(),
            health: None,
        };
        let config = ServeConfig { children: names.iter().map(child).collect(), ..ServeConfig::default() };
        assert_eq!(config.check().err().map(|error| error.to_string()).as_deref(), wanted);
    }

    #[test]
    fn an_unknown_key_is_refused_and_defaults_apply() {
        let config: ServeConfig = serde_json::from_str("{}").unwrap();
        assert_eq!(config, ServeConfig::default());
        assert!(serde_json::from_str::<ServeConfig>(r#"{"crd": []}"#).is_err());
    }
}
