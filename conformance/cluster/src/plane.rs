//! The four servers of a control plane: files and command lines.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::{
    ChildConfig, Error,
    binaries::Binaries,
    files::{private_dir, remove_dir, write_private},
    pki::Pki,
    ports,
};

pub(crate) const ETCD: &str = "etcd";
pub(crate) const API_SERVER: &str = "kube-apiserver";
pub(crate) const CONTROLLER_MANAGER: &str = "kube-controller-manager";
pub(crate) const SCHEDULER: &str = "kube-scheduler";

/// The names of the servers in the order in which they are stopped. The API server never ends by itself once etcd is gone.
pub(crate) const STOP_ORDER: [&str; 4] = [SCHEDULER, CONTROLLER_MANAGER, API_SERVER, ETCD];

/// Writes only, and of those only who did what to which object: enough to count requests, cheap enough to be always on.
const AUDIT_POLICY: &str = r#"apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: ["RequestReceived"]
rules:
  - level: Metadata
    verbs: ["create", "update", "patch", "delete", "deletecollection"]
  - level: None
"#;

/// One control plane that can be started: its files are written, its ports chosen.
#[derive(Debug)]
pub(crate) struct Plane {
    /// The servers, in the order in which they are started.
    pub(crate) servers: [ChildConfig; 4],
    /// The admin's kubeconfig.
    pub(crate) kubeconfig: PathBuf,
    /// The ports that others may want to know, by server.
    pub(crate) ports: BTreeMap<String, u16>,
    /// The authority of the servers' certificates, in DER.
    pub(crate) ca_der: Vec<u8>,
}

impl Plane {
    /// Writes the files of a new plane into `dir`; an attempt that failed before leaves nothing in the way.
    pub(crate) fn create(dir: &Path, binaries: &Binaries) -> Result<Self, Error> {
        let pki = Pki::create(&dir.join("pki"))?;
        let audit_policy = dir.join("pki/audit-policy.yaml");
        write_private(&audit_policy, AUDIT_POLICY)?;
        remove_dir(&dir.join("etcd"))?;
        private_dir(&dir.join("etcd"))?;
        remove_dir(&dir.join("logs"))?;
        private_dir(&dir.join("logs"))?;
        let [etcd, peer, api, manager, scheduler] = ports::free(5)?[..] else { return Err(Error::NoPort) };
        let kubeconfig = dir.join("kubeconfig");
        pki.kubeconfig(&kubeconfig, "admin", api)?;
        for user in ["controller-manager", "scheduler"] {
            pki.kubeconfig(&dir.join("pki").join(user), user, api)?;
        }
        let files = Files { dir, pki: &pki };
        Ok(Self {
            servers: [
                server(ETCD, &binaries.etcd, files.etcd(etcd, peer)),
                server(API_SERVER, &binaries.kube_apiserver, files.api_server(api, etcd, &audit_policy)),
                server(
                    CONTROLLER_MANAGER,
                    &binaries.kube_controller_manager,
                    files.controller_manager(manager),
                ),
                server(SCHEDULER, &binaries.kube_scheduler, files.scheduler(scheduler)),
            ],
            kubeconfig,
            ports: BTreeMap::from([
                (API_SERVER.to_owned(), api),
                (CONTROLLER_MANAGER.to_owned(), manager),
                (ETCD.to_owned(), etcd),
                (SCHEDULER.to_owned(), scheduler),
            ]),
            ca_der: pki.ca_der,
        })
    }
}

fn server(name: &str, binary: &Path, flags: Vec<String>) -> ChildConfig {
    let argv = std::iter::once(binary.display().to_string()).chain(flags).collect();
    ChildConfig { name: name.to_owned(), argv, env: BTreeMap::new(), health: None }
}

struct Files<'a> {
    dir: &'a Path,
    pki: &'a Pki,
}

impl Files<'_> {
    fn etcd(&self, client: u16, peer: u16) -> Vec<String> {
        let (client, peer) = (format!("https://127.0.0.1:{client}"), format!("https://127.0.0.1:{peer}"));
        let mut flags = vec![
            "--name=bufconf".to_owned(),
            format!("--data-dir={}", self.dir.join("etcd").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=bufconf={peer}"),
            // The data is thrown away with the plane.
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        for side in ["", "peer-"] {
            flags.push(format!("--{side}cert-file={}", self.pki.path("etcd.crt")));
            flags.push(format!("--{side}key-file={}", self.pki.path("etcd.key")));
            flags.push(format!("--{side}trusted-ca-file={}", self.pki.path("etcd-ca.crt")));
            flags.push(format!("--{side}client-cert-auth=true"));
        }
        flags
    }

    fn api_server(&self, port: u16, etcd: u16, audit_policy: &Path) -> Vec<String> {
        let pki = self.pki;
        vec![
            format!("--etcd-servers=https://127.0.0.1:{etcd}"),
            format!("--etcd-cafile={}", pki.path("etcd-ca.crt")),
            format!("--etcd-certfile={}", pki.path("etcd.crt")),
            format!("--etcd-keyfile={}", pki.path("etcd.key")),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            // Else it looks for a default route, which a machine without a network lacks.
            "--advertise-address=127.0.0.1".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--tls-cert-file={}", pki.path("server.crt")),
            format!("--tls-private-key-file={}", pki.path("server.key")),
            format!("--client-ca-file={}", pki.path("ca.crt")),
            format!("--cert-dir={}", self.dir.join("pki").display()),
            format!("--service-account-key-file={}", pki.path("service-account.pub")),
            format!("--service-account-signing-key-file={}", pki.path("service-account.key")),
            "--service-account-issuer=https://kubernetes.default".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            "--allow-privileged=true".to_owned(),
            "--profiling=false".to_owned(),
            format!("--audit-policy-file={}", audit_policy.display()),
            format!("--audit-log-path={}", self.dir.join("audit.log").display()),
            // In MB: never rotated within a test run, so that counting needs one file.
            "--audit-log-maxsize=4096".to_owned(),
        ]
    }

    fn controller_manager(&self, port: u16) -> Vec<String> {
        let mut flags = self.client_of_api_server("controller-manager", port);
        flags.extend([
            format!("--service-account-private-key-file={}", self.pki.path("service-account.key")),
            format!("--root-ca-file={}", self.pki.path("ca.crt")),
            // The manager's own user may little more than this; each control loop has its own service account.
            "--use-service-account-credentials=true".to_owned(),
        ]);
        flags
    }

    fn scheduler(&self, port: u16) -> Vec<String> {
        self.client_of_api_server("scheduler", port)
    }

    fn client_of_api_server(&self, user: &str, port: u16) -> Vec<String> {
        let kubeconfig = self.dir.join("pki").join(user);
        let kubeconfig = kubeconfig.display();
        vec![
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            "--leader-elect=false".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--tls-cert-file={}", self.pki.path("server.crt")),
            format!("--tls-private-key-file={}", self.pki.path("server.key")),
            // With the defaults 100 nodes take many seconds to lose their not-ready taint.
            "--kube-api-qps=1000".to_owned(),
            "--kube-api-burst=2000".to_owned(),
            "--profiling=false".to_owned(),
        ]
    }
}
