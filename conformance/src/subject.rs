//! The implementation under test and the processes it consists of.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, anyhow};
use buffer_api::{FakeNodeClass, FakeNodeClassSpec};
use conformance_engine::{
    catalogue::Catalogue,
    implementation::{Hook, Implementation},
    scenario::Settings,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams},
};
use test_cluster::{ChildConfig, ServeConfig};
use tokio::process::Command;

use crate::{catalogue::listed, failure::Failure};

/// The declaration of the reference implementation.
const REFERENCE: &str = include_str!("../../ci/implementations/reference.yaml");

/// An implementation and how it gets onto a plane.
#[derive(Debug)]
pub struct Subject {
    /// What it claims and how pools are made.
    pub implementation: Implementation,
    reference: bool,
}

impl Subject {
    /// The reference by its name, or a declaration file. What it says of scenarios is checked against the catalogue.
    pub fn load(name: &str, catalogue: Option<&Catalogue>) -> Result<Self, Failure> {
        let reference = name == "reference";
        let (file, text) = if reference {
            ("reference.yaml".to_owned(), REFERENCE.to_owned())
        } else {
            let text = fs::read_to_string(name)
                .with_context(|| format!("reading the implementation file {name}"))
                .map_err(Failure::usage)?;
            (name.to_owned(), text)
        };
        let implementation = Implementation::parse(&file, &text, catalogue)
            .map_err(|diagnostics| Failure::usage(listed(&diagnostics)))?;
        Ok(Self { implementation, reference })
    }

    /// What runs on a plane: the reference's CRDs, cloud and controller. Another implementation brings its own by its
    /// `install` hook.
    pub fn serve_config(
        &self,
        program: &Path,
        kubernetes: &str,
        settings: Settings,
        owner: Option<u32>,
    ) -> Result<ServeConfig, Failure> {
        let mut config = ServeConfig { kubernetes: kubernetes.to_owned(), owner, ..ServeConfig::default() };
        if self.reference {
            config.crds = buffer_api::crd::all()
                .iter()
                .map(serde_yaml::to_string)
                .collect::<Result<_, _>>()
                .map_err(Failure::environment)?;
            let gate = settings.gate.unwrap_or(true);
            config.children = vec![
                child(program, "cloud", &[]),
                child(
                    program,
                    "controller",
                    &["--feature-gates".to_owned(), format!("CapacityBuffer={gate}")],
                ),
            ];
        }
        Ok(config)
    }

    /// Puts the implementation's objects onto a plane that is up.
    pub async fn install(&self, client: &Client, kubeconfig: &Path) -> Result<(), Failure> {
        if self.reference {
            return default_class(client).await;
        }
        let Some([program, arguments @ ..]) =
            self.implementation.hooks.get(&Hook::Install).map(Vec::as_slice)
        else {
            return Ok(());
        };
        let status = Command::new(program)
            .args(arguments)
            .env("KUBECONFIG", kubeconfig)
            .status()
            .await
            .with_context(|| format!("running the install hook {program}"))
            .map_err(Failure::environment)?;
        if status.success() {
            Ok(())
        } else {
            Err(Failure::environment(anyhow!("the install hook {program} failed: {status}")))
        }
    }
}

/// One of the reference's processes: a verb of this program.
fn child(program: &Path, verb: &str, more: &[String]) -> ChildConfig {
    let mut argv = vec![
        program.display().to_string(),
        verb.to_owned(),
        "--kubeconfig".to_owned(),
        "${KUBECONFIG}".to_owned(),
        "--admin-port".to_owned(),
        format!("${{PORT:{verb}}}"),
    ];
    argv.extend_from_slice(more);
    ChildConfig {
        name: verb.to_owned(),
        argv,
        env: BTreeMap::new(),
        health: Some(format!("http://127.0.0.1:${{PORT:{verb}}}/readyz")),
    }
}

/// The node class that documentation calls `default`.
async fn default_class(client: &Client) -> Result<(), Failure> {
    let mut class = FakeNodeClass::new("default", FakeNodeClassSpec::default());
    class.metadata = ObjectMeta { name: Some("default".to_owned()), ..ObjectMeta::default() };
    Api::<FakeNodeClass>::all(client.clone())
        .patch("default", &PatchParams::apply("bufconf"), &Patch::Apply(&class))
        .await
        .context("creating the default node class")
        .map_err(Failure::environment)?;
    Ok(())
}
