//! What the cloud sells: compact catalogues that are shipped with the binary and expand to instance types.

use std::collections::BTreeMap;

use buffer_api::{
    Quantity,
    fake_node_class::{InstanceType, Offering},
    labels,
};
use k8s_openapi::{
    api::core::v1::NodeSelectorRequirement, apimachinery::pkg::api::resource::Quantity as ApiQuantity,
};
use serde::Deserialize;

/// Node label: family of the instance type, the text before the first dash of its name.
pub const FAMILY: &str = "bufconf.dev/instance-family";
/// Node label: size of the instance type, such as `2x`.
pub const SIZE: &str = "bufconf.dev/instance-size";
/// Node label: number of cpus, an integer for `Gt` and `Lt`.
pub const CPU: &str = "bufconf.dev/instance-cpu";
/// Node label: memory in MiB, an integer for `Gt` and `Lt`.
pub const MEMORY: &str = "bufconf.dev/instance-memory";

/// The catalogue of a class that names none.
pub const DEFAULT: &str = "default";

/// Name and text of each catalogue that is shipped.
const SHIPPED: [(&str, &str); 1] = [(DEFAULT, include_str!("../catalog/default.yaml"))];

/// Why a catalogue can't be had.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// No catalogue has this name.
    #[error("there is no catalogue \"{name}\"; the nearest name is \"{nearest}\"")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The nearest name that exists.
        nearest: &'static str,
    },
    /// The text of a catalogue is not a catalogue.
    #[error("reading the catalogue \"{0}\"")]
    Syntax(String, #[source] Box<serde_saphyr::Error>),
    /// An amount in a catalogue is not a quantity.
    #[error("reading the catalogue \"{0}\"")]
    Quantity(String, #[source] buffer_api::quantity::ParseQuantityError),
}

/// The instance types of a shipped catalogue, by name.
pub fn instance_types(name: &str) -> Result<Vec<InstanceType>, CatalogError> {
    let Some((_, text)) = SHIPPED.iter().find(|(shipped, _)| *shipped == name) else {
        let nearest =
            SHIPPED.iter().map(|(shipped, _)| *shipped).min_by_key(|s| strsim::levenshtein(s, name));
        return Err(CatalogError::Unknown { name: name.to_owned(), nearest: nearest.unwrap_or(DEFAULT) });
    };
    let catalog: Catalog = serde_saphyr::from_str(text)
        .map_err(|error| CatalogError::Syntax(name.to_owned(), Box::new(error)))?;
    catalog.expand().map_err(|error| CatalogError::Quantity(name.to_owned(), error))
}

/// The compact form.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Catalog {
    families: Vec<Family>,
    cpus: Vec<u32>,
    architectures: Vec<String>,
    operating_systems: Vec<String>,
    zones: Vec<String>,
    capacity_types: Vec<CapacityType>,
    price: Price,
    pods: Pods,
    ephemeral_storage: String,
    overhead: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Family {
    name: String,
    memory_per_cpu: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CapacityType {
    name: String,
    price_factor: f64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Price {
    per_cpu: f64,
    per_gigabyte: f64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Pods {
    per_cpu: u32,
    max: u32,
}

impl Catalog {
    fn expand(&self) -> Result<Vec<InstanceType>, buffer_api::quantity::ParseQuantityError> {
        let overhead: BTreeMap<_, _> =
            self.overhead.iter().map(|(k, v)| (k.clone(), ApiQuantity(v.clone()))).collect();
        for amount in self.overhead.values().chain([&self.ephemeral_storage]) {
            amount.parse::<Quantity>()?;
        }
        let mut types = Vec::new();
        for Family { name: family, memory_per_cpu } in &self.families {
            let memory_per_cpu: Quantity = memory_per_cpu.parse()?;
            for &cpu in &self.cpus {
                let memory = memory_per_cpu.times(i64::from(cpu));
                for arch in &self.architectures {
                    for os in &self.operating_systems {
                        let name = format!("{family}-{cpu}x-{arch}-{os}");
                        types.push(InstanceType {
                            requirements: requirements(family, cpu, memory, arch, os),
                            capacity: self.capacity(cpu, memory),
                            overhead: overhead.clone(),
                            offerings: self.offerings(cpu, memory),
                            name,
                        });
                    }
                }
            }
        }
        Ok(types)
    }

    fn capacity(&self, cpu: u32, memory: Quantity) -> BTreeMap<String, ApiQuantity> {
        let pods = cpu.saturating_mul(self.pods.per_cpu).min(self.pods.max);
        [
            ("cpu", ApiQuantity(cpu.to_string())),
            ("memory", memory.into()),
            ("pods", ApiQuantity(pods.to_string())),
            ("ephemeral-storage", ApiQuantity(self.ephemeral_storage.clone())),
        ]
        .map(|(resource, amount)| (resource.to_owned(), amount))
        .into()
    }

    fn offerings(&self, cpu: u32, memory: Quantity) -> Vec<Offering> {
        #[expect(clippy::cast_precision_loss, reason = "bytes of memory are below 2^53")]
        let gigabytes = (memory.as_nanos() / 1_000_000_000) as f64 / 1e9;
        let price = self.price.per_cpu * f64::from(cpu) + self.price.per_gigabyte * gigabytes;
        let mut offerings = Vec::new();
        for zone in &self.zones {
            for capacity_type in &self.capacity_types {
                offerings.push(Offering {
                    zone: zone.clone(),
                    capacity_type: capacity_type.name.clone(),
                    price: price * capacity_type.price_factor,
                });
            }
        }
        offerings
    }
}

fn mebibytes(memory: Quantity) -> u64 {
    memory.fits(Quantity::units(1 << 20)).unwrap_or_default()
}

fn requirements(
    family: &str,
    cpu: u32,
    memory: Quantity,
    arch: &str,
    os: &str,
) -> Vec<NodeSelectorRequirement> {
    [
        (labels::ARCH, arch.to_owned()),
        (labels::OS, os.to_owned()),
        (FAMILY, family.to_owned()),
        (SIZE, format!("{cpu}x")),
        (CPU, cpu.to_string()),
        (MEMORY, mebibytes(memory).to_string()),
    ]
    .map(|(key, value)| NodeSelectorRequirement {
        key: key.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![value]),
    })
    .into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rstest::rstest;

    use super::*;

    fn default() -> Vec<InstanceType> {
        instance_types(DEFAULT).expect("the default catalogue is readable")
    }

    #[test]
    fn as_wide_as_karpenters() {
        let types = default();
        assert_eq!(types.len(), 144);
        assert_eq!(types.iter().map(|t| &t.name).collect::<BTreeSet<_>>().len(), 144);
        assert!(types.iter().all(|t| t.offerings.len() == 8));
        let json = serde_json::to_vec(&types).expect("serializable");
        assert!(json.len() < 400_000, "{} bytes must stay far below etcd's limit of 1.5 MiB", json.len());
    }

    #[rstest]
    #[case("c-1x-amd64-linux", 0.027_147_483_648, "1", "2Gi", "16")]
    #[case("c-2x-amd64-linux", 0.054_294_967_296, "2", "4Gi", "32")]
    #[case("s-2x-arm64-linux", 0.058_589_934_592, "2", "8Gi", "32")]
    #[case("m-2x-amd64-windows", 0.067_179_869_184, "2", "16Gi", "32")]
    #[case("c-4x-arm64-windows", 0.108_589_934_592, "4", "8Gi", "64")]
    #[case("c-256x-amd64-linux", 6.949_755_813_888, "256", "512Gi", "1024")]
    fn exact_facts(
        #[case] name: &str,
        #[case] price: f64,
        #[case] cpu: &str,
        #[case] memory: &str,
        #[case] pods: &str,
    ) {
        let types = default();
        let found = types.iter().find(|t| t.name == name).expect("sold");
        for (resource, amount) in
            [("cpu", cpu), ("memory", memory), ("pods", pods), ("ephemeral-storage", "20Gi")]
        {
            assert_eq!(found.capacity[resource].0, amount, "{resource}");
        }
        assert_eq!(found.overhead["cpu"].0, "100m");
        assert_eq!(found.overhead["memory"].0, "10Mi");
        let mut sold = BTreeSet::new();
        for offering in &found.offerings {
            let want = if offering.capacity_type == "spot" { price * 0.7 } else { price };
            assert!((offering.price - want).abs() < 1e-14, "{} is not {want}", offering.price);
            sold.insert((offering.zone.as_str(), offering.capacity_type.as_str()));
        }
        let zones = ["test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"];
        assert_eq!(sold, zones.iter().flat_map(|&z| [(z, "on-demand"), (z, "spot")]).collect());
    }

    #[test]
    fn labels_of_a_type() {
        let types = default();
        let found = types.iter().find(|t| t.name == "s-16x-arm64-linux").expect("sold");
        let labels: Vec<_> = found
            .requirements
            .iter()
            .map(|r| (r.key.as_str(), r.values.as_ref().expect("values").join(",")))
            .collect();
        let want = [
            ("kubernetes.io/arch", "arm64"),
            ("kubernetes.io/os", "linux"),
            ("bufconf.dev/instance-family", "s"),
            ("bufconf.dev/instance-size", "16x"),
            ("bufconf.dev/instance-cpu", "16"),
            ("bufconf.dev/instance-memory", "65536"),
        ];
        similar_asserts::assert_eq!(labels, want.map(|(k, v)| (k, v.to_owned())).to_vec());
    }

    #[test]
    fn unknown_name() {
        let error = instance_types("defualt").expect_err("not there").to_string();
        assert_eq!(error, "there is no catalogue \"defualt\"; the nearest name is \"default\"");
    }
}
