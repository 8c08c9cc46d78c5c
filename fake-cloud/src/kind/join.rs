//! How a container becomes the node that was bought.

use std::collections::BTreeMap;

use buffer_api::quantity::{ParseQuantityError, Quantity};
use k8s_openapi::api::core::v1::Taint;
use serde_json::json;

use crate::{launch::Instance, rules::Labels};

/// The size that a kubelet is shown, and what of it is kept for the system, so that what is allocatable is what was bought.
/// The host may be smaller: only what pods really use is shared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Size {
    /// CPUs.
    pub cpus: i64,
    /// Memory, KiB.
    pub memory_kib: i64,
    /// CPU kept for the system, thousandths.
    pub kept_cpu: i64,
    /// Memory kept for the system, bytes.
    pub kept_memory: i64,
    /// Most pods.
    pub pods: i64,
}

impl Size {
    /// The size of an instance. Whole CPUs and whole KiB: a machine has no others.
    pub fn of(instance: &Instance) -> Result<Self, ParseQuantityError> {
        let amount = |amounts: &BTreeMap<String, _>, name: &str, unit: Quantity| {
            let amount = amounts.get(name).map(Quantity::try_from).transpose()?.unwrap_or_default();
            Ok(i64::try_from(amount.fits(unit).unwrap_or_default()).unwrap_or(i64::MAX))
        };
        let (milli, byte) = (Quantity::milli(1), Quantity::units(1));
        let cpu = amount(&instance.capacity, "cpu", milli)?;
        let memory = amount(&instance.capacity, "memory", byte)?;
        Ok(Self {
            cpus: cpu / 1000,
            memory_kib: memory / 1024,
            kept_cpu: cpu / 1000 * 1000 - amount(&instance.allocatable, "cpu", milli)?,
            kept_memory: memory / 1024 * 1024 - amount(&instance.allocatable, "memory", byte)?,
            pods: amount(&instance.allocatable, "pods", byte)?,
        })
    }

    /// A patch of the kubelet's configuration.
    fn kubelet_patch(self) -> String {
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "maxPods": self.pods,
            "systemReserved": {
                "cpu": format!("{}m", self.kept_cpu.max(0)),
                "memory": self.kept_memory.max(0).to_string(),
            },
            "kubeReserved": {},
            // of a host that is shared nothing can be promised, and nobody is evicted for it
            // (a threshold of memory that is not named is none, and zero is refused)
            "evictionHard": {"nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"},
        })
        .to_string()
    }
}

/// All that a container is told for its join.
#[derive(Clone, Debug)]
pub struct Join<'a> {
    /// `host:port` of the API server on the network of the cluster.
    pub endpoint: &'a str,
    /// A bootstrap token of its own.
    pub token: &'a str,
    /// Name of the Node.
    pub node: &'a str,
    /// Its provider id.
    pub provider_id: &'a str,
    /// Its labels, as far as a kubelet may set them.
    pub labels: &'a Labels,
    /// Its taints.
    pub taints: &'a [Taint],
    /// Its size.
    pub size: Size,
}

/// Name of the file of which kubeadm makes the kubelet's configuration.
const PATCH: &str = "kubeletconfiguration0+merge.json";

/// Runs in the container, with bash: configuration, patch, CPUs, KiB of memory.
///
/// The folder is made by one call that fails if it is there: a container joins once. The CPUs are bare folders without a
/// topology, for with one the kubelet would write CPUs into a cpuset that the kernel does not have.
const SCRIPT: &str = r#"
set -euo pipefail
state=/run/bufconf
mkdir "$state"
until [[ -S /run/containerd/containerd.sock ]]; do sleep 0.1; done

sed "1s/.*/MemTotal:       $4 kB/" /proc/meminfo >"$state/meminfo"
mount --bind "$state/meminfo" /proc/meminfo
mkdir "$state/cpu" "$state/node" "$state/patches"
for ((cpu = 0; cpu < $3; cpu++)); do mkdir "$state/cpu/cpu$cpu"; done
for list in online possible present; do echo "0-$(($3 - 1))" >"$state/cpu/$list"; done
mount --bind "$state/cpu" /sys/devices/system/cpu
mount --bind "$state/node" /sys/devices/system/node

umask 077
printf '%s' "$1" >"$state/join.json"
printf '%s' "$2" >"$state/patches/PATCH"
exec kubeadm join --config "$state/join.json" --v=1
"#;

impl Join<'_> {
    /// The command that is run in the container.
    #[must_use]
    pub fn command(&self) -> Vec<String> {
        let script = SCRIPT.replace("PATCH", PATCH);
        let Size { cpus, memory_kib, .. } = self.size;
        let configuration = self.configuration();
        let arguments = [configuration, self.size.kubelet_patch(), cpus.to_string(), memory_kib.to_string()];
        ["bash", "-c", &script, "join"].map(str::to_owned).into_iter().chain(arguments).collect()
    }

    fn configuration(&self) -> String {
        let labels = self.labels.iter().filter(|(key, _)| may_be_set_by_kubelet(key));
        let labels: Vec<_> = labels.map(|(key, value)| format!("{key}={value}")).collect();
        json!({
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "JoinConfiguration",
            "discovery": {"bootstrapToken": {
                "apiServerEndpoint": self.endpoint,
                "token": self.token,
                // as kind itself does: the network is a private one of this host
                "unsafeSkipCAVerification": true,
            }},
            "nodeRegistration": {
                "name": self.node,
                "criSocket": "unix:///run/containerd/containerd.sock",
                "taints": self.taints,
                "kubeletExtraArgs": [
                    {"name": "node-labels", "value": labels.join(",")},
                    {"name": "provider-id", "value": self.provider_id},
                ],
            },
            "patches": {"directory": "/run/bufconf/patches"},
            // it would pull images and complain of the host
            "skipPhases": ["preflight"],
        })
        .to_string()
    }
}

/// Whether a kubelet may give its own Node this label. Of Kubernetes' own prefixes it may set a few only, and does not start
/// when it is told to set others.
#[must_use]
pub fn may_be_set_by_kubelet(key: &str) -> bool {
    const ALLOWED: [&str; 9] = [
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "beta.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    ];
    let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
    let of = |domain: &str| prefix == domain || prefix.ends_with(&format!(".{domain}"));
    let own = prefix == "kubelet.kubernetes.io"
        || prefix.ends_with(".kubelet.kubernetes.io")
        || prefix == "node.kubernetes.io"
        || prefix.ends_with(".node.kubernetes.io");
    !(of("kubernetes.io") || of("k8s.io")) || own || ALLOWED.contains(&key)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
    use rstest::rstest;
    use serde_json::Value;

    use super::*;

    fn amounts(cpu: &str, memory: &str, pods: &str) -> BTreeMap<String, Text> {
        [("cpu", cpu), ("memory", memory), ("pods", pods)]
            .map(|(name, amount)| (name.to_owned(), Text(amount.to_owned())))
            .into()
    }

    fn instance() -> Instance {
        Instance {
            labels: Labels::new(),
            capacity: amounts("2", "4Gi", "32"),
            allocatable: amounts("1900m", "4086Mi", "32"),
        }
    }

    #[test]
    fn what_is_kept_is_the_difference() {
        let size = Size::of(&instance()).expect("quantities");
        let kept = Size { cpus: 2, memory_kib: 4 << 20, kept_cpu: 100, kept_memory: 10 << 20, pods: 32 };
        assert_eq!(size, kept);
        let patch: Value = serde_json::from_str(&size.kubelet_patch()).expect("JSON");
        assert_eq!(patch["systemReserved"]["cpu"], "100m");
        assert_eq!(patch["systemReserved"]["memory"], "10485760");
        assert_eq!(patch["maxPods"], 32);
    }

    #[test]
    fn a_join_says_all_that_the_kubelet_may_say_itself() {
        let labels: Labels = [
            ("karpenter.sh/nodepool", "web"),
            ("kubernetes.io/arch", "amd64"),
            ("beta.kubernetes.io/arch", "amd64"),
            ("node-role.kubernetes.io/worker", ""),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        let taints = [Taint { key: "k".to_owned(), effect: "NoExecute".to_owned(), ..Taint::default() }];
        let join = Join {
            endpoint: "demo-control-plane:6443",
            token: "abcdef.0123456789abcdef",
            node: "web-1",
            provider_id: "fake://one/u-1",
            labels: &labels,
            taints: &taints,
            size: Size::of(&instance()).expect("quantities"),
        };
        let command = join.command();
        assert!(command[2].contains(PATCH) && !command[2].contains("/PATCH"), "{}", command[2]);
        assert_eq!(command[6..], ["2", "4194304"]);
        let configuration: Value = serde_json::from_str(&command[4]).expect("JSON");
        let registration = &configuration["nodeRegistration"];
        assert_eq!(registration["name"], "web-1");
        assert_eq!(registration["taints"][0]["effect"], "NoExecute");
        let told = &registration["kubeletExtraArgs"];
        assert_eq!(told[0]["value"], "karpenter.sh/nodepool=web,kubernetes.io/arch=amd64");
        assert_eq!(told[1]["value"], "fake://one/u-1");
    }

    #[rstest]
    #[case("karpenter.sh/nodepool", true)]
    #[case("bufconf.dev/pool", true)]
    #[case("plain", true)]
    #[case("node.kubernetes.io/instance-type", true)]
    #[case("node.kubernetes.io/anything", true)]
    #[case("topology.kubernetes.io/zone", true)]
    #[case("topology.kubernetes.io/other", false)]
    #[case("beta.kubernetes.io/os", false)]
    #[case("node-restriction.kubernetes.io/team", false)]
    #[case("example.k8s.io/x", false)]
    fn labels_of_a_kubelet(#[case] key: &str, #[case] allowed: bool) {
        assert_eq!(may_be_set_by_kubelet(key), allowed);
    }
}
