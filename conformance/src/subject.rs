//! The implementation under test and the processes it consists of.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};
use conformance_engine::{
    catalogue::Catalogue,
    implementation::{Hook, Implementation, Process},
    scenario::Settings,
};
use kube::{
    Client,
    api::{Api, DynamicObject, Patch, PatchParams},
    discovery,
};
use test_cluster::{ChildConfig, ServeConfig, binaries::Sources};
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
    /// Folder of the declaration.
    folder: PathBuf,
    /// Folder of what was built or downloaded.
    cache: PathBuf,
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
        let path = std::path::absolute(&file).context("finding the folder").map_err(Failure::environment)?;
        let folder = path.parent().unwrap_or(&path).to_owned();
        let mut subject = Self { implementation, reference, folder, cache: Sources::from_env()?.cache };
        // the engine runs hooks too
        let mut hooks = std::mem::take(&mut subject.implementation.hooks);
        for word in hooks.values_mut().flatten() {
            *word = subject.resolve(word);
        }
        subject.implementation.hooks = hooks;
        Ok(subject)
    }

    /// Tells its hooks which program this is.
    #[must_use]
    pub fn with_program(mut self, program: &Path) -> Self {
        let program = program.display().to_string();
        for word in self.implementation.hooks.values_mut().flatten() {
            *word = word.replace("${BUFCONF}", &program);
        }
        self
    }

    /// Limits the nodes of its pools to what a machine bears.
    #[must_use]
    pub fn with_most_nodes(mut self, most: Option<u32>) -> Self {
        for pool in &mut self.implementation.pools {
            pool.max_nodes = most.map_or(pool.max_nodes, |most| pool.max_nodes.min(most));
        }
        self
    }

    fn resolve(&self, text: &str) -> String {
        text.replace("${DIR}", &self.folder.display().to_string())
            .replace("${CACHE}", &self.cache.display().to_string())
    }

    /// Gets onto this machine what the implementation's processes need.
    pub fn prepare(&self) -> Result<(), Failure> {
        let Some([program, arguments @ ..]) = self.hook(Hook::Prepare) else { return Ok(()) };
        let status = std::process::Command::new(program)
            .args(arguments)
            // what it says is progress, and no result
            .stdout(std::io::stderr())
            .status()
            .with_context(|| format!("running the prepare hook {program}"))
            .map_err(Failure::environment)?;
        if status.success() {
            Ok(())
        } else {
            Err(Failure::environment(anyhow!("the prepare hook {program} failed: {status}")))
        }
    }

    fn hook(&self, hook: Hook) -> Option<&[String]> {
        self.implementation.hooks.get(&hook).map(Vec::as_slice)
    }

    /// What runs on a plane of our own.
    pub fn serve_config(
        &self,
        program: &Path,
        kubernetes: &str,
        settings: Settings,
        owner: Option<u32>,
    ) -> Result<ServeConfig, Failure> {
        let crds = if self.reference {
            buffer_api::crd::all()
                .iter()
                .map(serde_yaml::to_string)
                .collect::<Result<_, _>>()
                .map_err(Failure::environment)?
        } else {
            self.crds()?
        };
        let gate = settings.gate.unwrap_or(true).to_string();
        let program = program.display().to_string();
        let resolve =
            |text: &String| self.resolve(text).replace("${BUFCONF}", &program).replace("${GATE}", &gate);
        let child = |process: &Process| ChildConfig {
            name: process.name.clone(),
            argv: process.command.iter().map(resolve).collect(),
            env: process.env.iter().map(|(name, value)| (name.clone(), resolve(value))).collect(),
            health: process.health.as_ref().map(resolve),
        };
        Ok(ServeConfig {
            kubernetes: kubernetes.to_owned(),
            crds,
            children: self.implementation.processes.iter().map(child).collect(),
            owner,
            ..ServeConfig::default()
        })
    }

    /// The declared CRD manifests.
    fn crds(&self) -> Result<Vec<String>, Failure> {
        let mut manifests = Vec::new();
        for named in &self.implementation.crds {
            let named = PathBuf::from(self.resolve(named));
            let reading = || format!("reading the CRDs in {}", named.display());
            let mut files = Vec::new();
            if named.is_dir() {
                for entry in fs::read_dir(&named).with_context(reading).map_err(Failure::environment)? {
                    let path = entry.with_context(reading).map_err(Failure::environment)?.path();
                    if path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
                        files.push(path);
                    }
                }
                files.sort();
            } else {
                files.push(named.clone());
            }
            for file in files {
                manifests.push(fs::read_to_string(file).with_context(reading).map_err(Failure::environment)?);
            }
        }
        Ok(manifests)
    }

    /// Puts the implementation's objects onto a plane of our own that is up, and lets it install itself.
    pub async fn install(&self, client: &Client, kubeconfig: &Path) -> Result<(), Failure> {
        for object in &self.implementation.objects {
            apply(client, object).await.map_err(Failure::environment)?;
        }
        let Some([program, arguments @ ..]) = self.hook(Hook::Install) else { return Ok(()) };
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

/// Applies one of the declared objects.
async fn apply(client: &Client, object: &serde_json::Value) -> anyhow::Result<()> {
    let object: DynamicObject =
        serde_json::from_value(object.clone()).context("reading a declared object")?;
    let types = object.types.as_ref().context("a declared object has no kind")?;
    let kind = types.try_into().context("reading the kind of a declared object")?;
    let name = object.metadata.name.clone().context("a declared object has no name")?;
    let naming = || format!("creating {} {name}", types.kind);
    let (resource, _) = discovery::pinned_kind(client, &kind).await.with_context(naming)?;
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let parameters = PatchParams::apply("bufconf");
    api.patch(&name, &parameters, &Patch::Apply(&object)).await.with_context(naming)?;
    Ok(())
}
