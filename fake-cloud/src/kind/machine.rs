//! The container of a node.

use std::collections::HashMap;

use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigCgroupnsModeEnum, RestartPolicy, RestartPolicyNameEnum,
};

use super::Template;

/// Label of a container: the name in the provider ids of the cloud whose it is.
pub(super) const CLOUD: &str = "bufconf.dev/cloud";
/// Label of a container: the claim that it was made for.
pub(super) const CLAIM: &str = "bufconf.dev/claim";
/// Label of a container: the UID of that claim.
pub(super) const CLAIM_UID: &str = "bufconf.dev/claim-uid";
/// Annotation of a claim, written before a container is made, and label of the container: which attempt it is. A container's
/// name contains it, so no name is ever used twice.
pub const ATTEMPT: &str = "bufconf.dev/attempt";
/// Label of a Node: what stands behind it, `kind` for a container.
pub const BACKEND: &str = "bufconf.dev/backend";
/// kind's label: the cluster that a container belongs to.
pub(super) const KIND_CLUSTER: &str = "io.x-k8s.kind.cluster";
/// kind's label: `control-plane` or `worker`.
pub(super) const KIND_ROLE: &str = "io.x-k8s.kind.role";

/// Whose a container is.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// The name in the cloud's provider ids.
    pub cloud: &'a str,
    /// Name of the claim.
    pub claim: &'a str,
    /// UID of the claim.
    pub uid: &'a str,
    /// Which attempt it is, from 1.
    pub attempt: u32,
}

/// The name of a container: `<kind cluster>-<first eight of the claim's UID>-<attempt>`.
#[must_use]
pub fn container_name(kind_cluster: &str, owner: Owner<'_>) -> String {
    let short: String = owner.uid.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
    format!("{kind_cluster}-{short}-{}", owner.attempt)
}

/// What Docker is told to create: what kind itself would, but for the restart policy. An instance that is gone stays so.
#[must_use]
pub fn container(template: &Template, kind_cluster: &str, owner: Owner<'_>) -> ContainerCreateBody {
    let text = |text: &str| text.to_owned();
    let labels = [
        (KIND_CLUSTER, text(kind_cluster)),
        (KIND_ROLE, text("worker")),
        (CLOUD, text(owner.cloud)),
        (CLAIM, text(owner.claim)),
        (CLAIM_UID, text(owner.uid)),
        (ATTEMPT, owner.attempt.to_string()),
    ];
    ContainerCreateBody {
        hostname: Some(container_name(kind_cluster, owner)),
        image: Some(template.image.clone()),
        // systemd writes to the console
        tty: Some(true),
        labels: Some(labels.map(|(key, value)| (text(key), value)).into()),
        env: Some(template.env.clone()),
        // images, pods and logs off the overlay
        volumes: Some(vec![text("/var")]),
        host_config: Some(HostConfig {
            privileged: Some(true),
            security_opt: Some(vec![text("seccomp=unconfined"), text("apparmor=unconfined")]),
            tmpfs: Some(HashMap::from(["/tmp", "/run"].map(|path| (text(path), String::new())))),
            binds: Some(vec![text("/lib/modules:/lib/modules:ro")]),
            network_mode: Some(template.network.clone()),
            restart_policy: Some(RestartPolicy {
                name: Some(RestartPolicyNameEnum::NO),
                maximum_retry_count: None,
            }),
            // systemd has to be the first process
            init: Some(false),
            cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
            userns_mode: template.userns_mode.clone(),
            sysctls: template.sysctls.clone(),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attempt_has_a_name_of_its_own_that_is_a_host_name() {
        let owner = |attempt| Owner {
            cloud: "one",
            claim: "web-1",
            uid: "7f3c2a10-55aa-4c1e-9d57-000000000001",
            attempt,
        };
        assert_eq!(container_name("demo", owner(1)), "demo-7f3c2a10-1");
        assert_eq!(container_name("demo", owner(2)), "demo-7f3c2a10-2");
    }

    #[test]
    fn a_container_says_whose_it_is_and_does_not_rise_again() {
        let template = Template {
            image: "sha256:1".to_owned(),
            network: "kind".to_owned(),
            endpoint: "demo-control-plane:6443".to_owned(),
            ..Template::default()
        };
        let owner = Owner { cloud: "one", claim: "web-1", uid: "7f3c2a10-55aa", attempt: 3 };
        let body = container(&template, "demo", owner);
        let labels = body.labels.expect("labels");
        similar_asserts::assert_eq!(labels[KIND_CLUSTER], "demo");
        similar_asserts::assert_eq!(labels[CLAIM_UID], "7f3c2a10-55aa");
        similar_asserts::assert_eq!(labels[ATTEMPT], "3");
        similar_asserts::assert_eq!(labels[CLOUD], "one");
        let host = body.host_config.expect("a host configuration");
        assert_eq!(host.restart_policy.and_then(|policy| policy.name), Some(RestartPolicyNameEnum::NO));
        assert_eq!(host.network_mode.as_deref(), Some("kind"));
        assert_eq!(body.image.as_deref(), Some("sha256:1"));
    }
}
