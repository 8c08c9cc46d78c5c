//! Buffers through the oracle's eyes: their templates, what they ask for, what fits.

use k8s_openapi::api::core::v1::{self as k8s, PodTemplateSpec};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    context::Context,
    oracle::{
        NotJudged,
        headroom::{Chunk, Headroom, measure},
        state,
    },
    outcome::Failure,
    wait::Unmet,
    world::{Key, State},
};
use crate::scenario::Target;

const BUFFERS: &str = "autoscaling.x-k8s.io/v1beta1";

/// A buffer and the template of its chunks.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// The buffer.
    pub key: Key,
    /// Its UID.
    pub uid: String,
    /// What its chunks look like: the user's template or the workload's, never what the status names.
    pub template: PodTemplateSpec,
}

/// Room that is asked for.
#[derive(Clone, Debug)]
pub struct Demand {
    buffers: Vec<Buffer>,
    at_least: Option<u32>,
}

impl Buffer {
    /// Reads a buffer and its template.
    pub async fn read(context: &Context, name: &str, namespace: Option<&str>) -> Result<Self, Failure> {
        let key = context.key(&target(BUFFERS, "CapacityBuffer", name, namespace)).await?;
        let missing = |key: &Key| Failure::Broken(format!("{key} is not there"));
        let buffer = context.cluster().get(&key).await?.ok_or_else(|| missing(&key))?;
        let spec = &buffer["spec"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let namespace = key.namespace.as_deref();
        let (source, path) = if let Some(template) = text(&spec["podTemplateRef"]["name"]) {
            (target("v1", "PodTemplate", &template, namespace), "/template")
        } else if let Some((kind, name)) =
            text(&spec["scalableRef"]["kind"]).zip(text(&spec["scalableRef"]["name"]))
        {
            let group = spec["scalableRef"]["apiGroup"].as_str().unwrap_or_default();
            let api_version = context.cluster().preferred(group, &kind).await?;
            (target(&api_version, &kind, &name, namespace), "/spec/template")
        } else {
            return Err(Failure::Broken(format!("{key} refers to nothing")));
        };
        let source = context.key(&source).await?;
        let object = context.cluster().get(&source).await?.ok_or_else(|| missing(&source))?;
        let template = object.pointer(path).cloned().ok_or(NotJudged::NoSpec)?;
        let template = parse(&source, template)?;
        Ok(Self { uid: text(&buffer["metadata"]["uid"]).unwrap_or_default(), key, template })
    }

    /// `status.replicas`, once it is set.
    #[must_use]
    pub fn replicas(&self, state: &State) -> Option<u64> {
        state.object(&self.key)?.pointer("/status/replicas")?.as_u64()
    }

    /// The chunk, that many times.
    pub fn chunk(&self, wanted: u64) -> Result<Chunk, NotJudged> {
        Chunk::new(&self.key.name, self.key.namespace.as_deref().unwrap_or_default(), &self.template, wanted)
    }
}

impl Demand {
    /// Reads the buffers and their templates, and finds out whether the oracle can judge them at all.
    pub async fn read(
        context: &Context,
        names: &[String],
        namespace: Option<&str>,
        at_least: Option<u32>,
    ) -> Result<Self, Failure> {
        let mut buffers = Vec::with_capacity(names.len());
        for name in names {
            buffers.push(Buffer::read(context, name, namespace).await?);
        }
        let chunks: Result<Vec<_>, _> = buffers.iter().map(|buffer| buffer.chunk(0)).collect();
        measure([], [], &chunks?)?;
        Ok(Self { buffers, at_least })
    }

    /// What is wanted, one line.
    #[must_use]
    pub fn wanted(&self) -> String {
        let names: Vec<_> = self.buffers.iter().map(|buffer| buffer.key.name.as_str()).collect();
        let names = names.join(" + ");
        match self.at_least {
            Some(count) => format!("room for {count} chunks of {names}"),
            None => format!("room for status.replicas chunks of {names}"),
        }
    }

    /// Whether the nodes and pods that the watches have shown leave enough room.
    pub fn check(&self, state: &State) -> Result<(), Unmet> {
        let chunks = self.chunks(state)?;
        let measured = measure(state.nodes(), state.pods(), &chunks);
        // nobody is blamed for it: `check_live` and `judges` tell what can't be judged
        self.compare(&measured.map_err(|error| Unmet::new(error.to_string()))?)
    }

    /// Whether the oracle can judge the nodes and pods that are there.
    pub fn judges(&self, state: &State) -> Result<(), NotJudged> {
        self.chunks(state).map_or(Ok(()), |chunks| measure(state.nodes(), state.pods(), &chunks).map(drop))
    }

    /// The same from consistent lists, which the server answers from a quorum.
    ///
    /// Nodes are listed before and after the pods. Room is missing only where both lists of nodes say so: between two lists a node
    /// can be born that already holds a pod, or a pod and its node can go.
    pub async fn check_live(&self, context: &Context) -> Result<Result<(), Unmet>, Failure> {
        let chunks = match context.world.read(|state| self.chunks(state)) {
            Ok(chunks) => chunks,
            Err(unmet) => return Ok(Err(unmet)),
        };
        let before = nodes(context).await?;
        let pods = list::<k8s::Pod, state::Pod>(context, "Pod").await?;
        let after = nodes(context).await?;
        if self.compare(&measure(&before, &pods, &chunks)?).is_ok() {
            return Ok(Ok(()));
        }
        Ok(self.compare(&measure(&after, &pods, &chunks)?))
    }

    fn chunks(&self, state: &State) -> Result<Vec<Chunk>, Unmet> {
        let chunk = |buffer: &Buffer| {
            let wanted = match self.at_least {
                Some(count) => u64::from(count),
                None => buffer
                    .replicas(state)
                    .ok_or_else(|| Unmet::new(format!("status.replicas of {} is not set", buffer.key)))?,
            };
            buffer.chunk(wanted).map_err(|error| Unmet::new(error.to_string()))
        };
        self.buffers.iter().map(chunk).collect()
    }

    fn compare(&self, headroom: &Headroom) -> Result<(), Unmet> {
        let enough = match self.at_least {
            Some(count) => headroom.total() >= u64::from(count),
            None => headroom.suffices(),
        };
        if enough { Ok(()) } else { Err(Unmet { seen: headroom.summary(), diff: Some(headroom.table()) }) }
    }
}

/// All nodes, from a consistent list.
pub async fn nodes(context: &Context) -> Result<Vec<state::Node>, Failure> {
    list::<k8s::Node, state::Node>(context, "Node").await
}

async fn list<K: DeserializeOwned, T: for<'a> From<&'a K>>(
    context: &Context,
    kind: &str,
) -> Result<Vec<T>, Failure> {
    let objects = context.cluster().list("v1", kind, None).await?;
    let read = |object: Value| serde_json::from_value::<K>(object).map(|object| T::from(&object));
    objects
        .into_iter()
        .map(read)
        .collect::<Result<_, _>>()
        .map_err(|error| Failure::Broken(error.to_string()))
}

fn parse<T: DeserializeOwned>(source: &Key, value: Value) -> Result<T, Failure> {
    serde_json::from_value(value)
        .map_err(|error| Failure::Broken(format!("the template of {source}: {error}")))
}

/// An object by its parts.
#[must_use]
pub fn target(api_version: &str, kind: &str, name: &str, namespace: Option<&str>) -> Target {
    Target {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        namespace: namespace.map(str::to_owned),
    }
}
