//! Shapes of pods, shared between equal pods.

use std::{
    collections::HashMap,
    fmt::{self, Write},
    hash::{DefaultHasher, Hasher},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use buffer_api::{
    Quantity,
    requests::{effective, is_sidecar},
};
use buffer_core::snapshot::{Labels, PodShape};
use k8s_openapi::api::core::v1::{Container, PodSpec, PodStatus};

use super::Error;

/// The shape of a pod, or of the pods of a template; each takes one of `pods`.
pub fn shape(
    namespace: String,
    labels: Labels,
    spec: PodSpec,
    status: Option<&PodStatus>,
) -> Result<PodShape, Error> {
    let mut requests = effective(&spec, status)?;
    requests.insert("pods".to_owned(), Quantity::units(1));
    Ok(PodShape {
        namespace,
        labels,
        requests,
        host_ports: host_ports(&spec),
        priority_class: spec.priority_class_name.filter(|name| !name.is_empty()),
        has_deadline: spec.active_deadline_seconds.is_some(),
        node_selector: spec.node_selector.unwrap_or_default(),
        affinity: spec.affinity,
        tolerations: spec.tolerations.unwrap_or_default(),
        topology_spread: spec.topology_spread_constraints.unwrap_or_default(),
    })
}

/// Host ports of containers and sidecars. In the host's network each port is a host port.
fn host_ports(spec: &PodSpec) -> Vec<(String, String, i32)> {
    let host_network = spec.host_network == Some(true);
    let sidecars = spec.init_containers.iter().flatten().filter(|container| is_sidecar(container));
    let ports = |container: &Container| container.ports.clone().unwrap_or_default();
    let mut all: Vec<_> = spec
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(ports)
        .filter_map(|port| {
            let number = port.host_port.filter(|&number| number > 0);
            let number = number.or(host_network.then_some(port.container_port))?;
            let protocol = port.protocol.unwrap_or_else(|| "TCP".to_owned());
            let ip = port.host_ip.filter(|ip| !ip.is_empty()).unwrap_or_else(|| "0.0.0.0".to_owned());
            Some((protocol, ip, number))
        })
        .collect();
    all.sort();
    all.dedup();
    all
}

/// Gives equal shapes one place in memory: the pods of a workload differ in nothing else.
#[derive(Debug, Default)]
pub struct Interner(Mutex<Shapes>);

#[derive(Debug, Default)]
struct Shapes {
    by_hash: HashMap<u64, Vec<Weak<PodShape>>>,
    /// Number of hashes at which shapes that nobody uses any more are dropped.
    sweep_at: usize,
}

impl Interner {
    /// The one shared copy of a shape.
    pub fn share(&self, shape: PodShape) -> Arc<PodShape> {
        let mut shapes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if shapes.by_hash.len() > shapes.sweep_at {
            shapes.by_hash.retain(|_, bucket| bucket.iter().any(|shape| shape.strong_count() > 0));
            shapes.sweep_at = 64 + 2 * shapes.by_hash.len();
        }
        let bucket = shapes.by_hash.entry(hash(&shape)).or_default();
        if let Some(known) = bucket.iter().filter_map(Weak::upgrade).find(|known| **known == shape) {
            return known;
        }
        bucket.retain(|shape| shape.strong_count() > 0);
        let shape = Arc::new(shape);
        bucket.push(Arc::downgrade(&shape));
        shape
    }
}

/// Hash of a shape by its debug text: the API's types implement no `Hash`.
fn hash(shape: &PodShape) -> u64 {
    struct Sink(DefaultHasher);

    impl Write for Sink {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.write(text.as_bytes());
            Ok(())
        }
    }

    let mut sink = Sink(DefaultHasher::new());
    // the sink accepts everything; were a hash cut short, equality would still decide
    let _ = write!(sink, "{shape:?}");
    sink.0.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use similar_asserts::assert_eq;

    use super::*;

    fn shape_of(spec: Value) -> PodShape {
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        shape("default".to_owned(), Labels::new(), spec, None).unwrap()
    }

    #[test]
    fn host_ports_of_containers_and_sidecars() {
        let shape = shape_of(json!({
            "containers": [{"name": "a", "ports": [
                {"containerPort": 80, "hostPort": 8080},
                {"containerPort": 53, "hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"},
                {"containerPort": 81},
            ]}],
            "initContainers": [
                {"name": "i", "ports": [{"containerPort": 1, "hostPort": 1}]},
                {"name": "s", "restartPolicy": "Always", "ports": [{"containerPort": 2, "hostPort": 2}]},
            ],
        }));
        let port = |protocol: &str, ip: &str, number| (protocol.to_owned(), ip.to_owned(), number);
        assert_eq!(
            shape.host_ports,
            [port("TCP", "0.0.0.0", 2), port("TCP", "0.0.0.0", 8080), port("UDP", "10.0.0.1", 53)]
        );
    }

    #[test]
    fn every_port_is_a_host_port_in_the_hosts_network() {
        let shape = shape_of(json!({
            "hostNetwork": true, "containers": [{"name": "a", "ports": [{"containerPort": 9100}]}],
        }));
        assert_eq!(shape.host_ports, [("TCP".to_owned(), "0.0.0.0".to_owned(), 9100)]);
    }

    #[test]
    fn equal_shapes_are_one_and_unused_ones_go() {
        let interner = Interner::default();
        let one = interner.share(shape_of(json!({"containers": [{"name": "a"}]})));
        let same = interner.share(shape_of(json!({"containers": [{"name": "b"}]})));
        assert!(Arc::ptr_eq(&one, &same));
        for n in 0..500 {
            let other =
                interner.share(shape_of(json!({"containers": [], "nodeSelector": {"n": n.to_string()}})));
            assert!(!Arc::ptr_eq(&one, &other));
        }
        assert!(interner.0.lock().unwrap().by_hash.len() < 200);
    }
}
