//! Fresh keys and certificates for one control plane. All are X.509 v3, because rustls refuses v1.

use std::path::{Path, PathBuf};

use k8s_openapi::ByteString;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use serde_json::json;

use crate::{
    Error,
    files::{private_dir, write_private},
};

/// Where the files of one control plane are.
#[derive(Debug)]
pub(crate) struct Pki {
    dir: PathBuf,
    /// The authority that signed the servers' and clients' certificates, in DER.
    pub(crate) ca_der: Vec<u8>,
}

/// Names under which pods and we reach the API server; 10.0.0.1 is the first of its service addresses.
const SERVER_NAMES: [&str; 6] =
    ["127.0.0.1", "10.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];

impl Pki {
    /// Makes everything that does not depend on a port.
    pub(crate) fn create(dir: &Path) -> Result<Self, Error> {
        private_dir(dir)?;
        let ca = Authority::create("bufconf")?;
        let pki = Self { dir: dir.to_owned(), ca_der: ca.0.der().to_vec() };
        write_private(&pki.file("ca.crt"), ca.0.pem())?;
        pki.issue(&ca, "server", &Subject::server("kube-apiserver", &SERVER_NAMES))?;
        pki.issue(&ca, "admin", &Subject::client("bufconf-admin", Some("system:masters")))?;
        pki.issue(&ca, "controller-manager", &Subject::client("system:kube-controller-manager", None))?;
        pki.issue(&ca, "scheduler", &Subject::client("system:kube-scheduler", None))?;
        // An authority of its own: who may talk to the API server may not therefore talk to its storage.
        let etcd_ca = Authority::create("bufconf-etcd")?;
        write_private(&pki.file("etcd-ca.crt"), etcd_ca.0.pem())?;
        pki.issue(&etcd_ca, "etcd", &Subject::both("etcd", &["127.0.0.1"]))?;
        let service_account = KeyPair::generate()?;
        write_private(&pki.file("service-account.key"), service_account.serialize_pem())?;
        write_private(&pki.file("service-account.pub"), service_account.public_key_pem())?;
        Ok(pki)
    }

    /// The path of a file, as an argument.
    pub(crate) fn path(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn issue(&self, authority: &Authority, file: &str, subject: &Subject<'_>) -> Result<(), Error> {
        let key = KeyPair::generate()?;
        let certificate = subject.params()?.signed_by(&key, &authority.0)?;
        write_private(&self.file(&format!("{file}.crt")), certificate.pem())?;
        write_private(&self.file(&format!("{file}.key")), key.serialize_pem())
    }

    /// A kubeconfig that needs no other file.
    pub(crate) fn kubeconfig(&self, path: &Path, user: &str, port: u16) -> Result<(), Error> {
        let embed = |name: String| -> Result<ByteString, Error> {
            let file = self.file(&name);
            std::fs::read(&file).map(ByteString).map_err(Error::io("reading", &file))
        };
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "bufconf", "cluster": {
                "server": format!("https://127.0.0.1:{port}"),
                "certificate-authority-data": embed("ca.crt".to_owned())?,
            }}],
            "users": [{"name": user, "user": {
                "client-certificate-data": embed(format!("{user}.crt"))?,
                "client-key-data": embed(format!("{user}.key"))?,
            }}],
            "contexts": [{"name": "bufconf", "context": {"cluster": "bufconf", "user": user}}],
            "current-context": "bufconf",
        });
        // JSON is YAML.
        write_private(path, crate::files::to_json(path, &config)?)
    }
}

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn create(name: &str) -> Result<Self, Error> {
        let mut params = base(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }
}

/// Whom a certificate names, and for which side of a connection.
struct Subject<'a> {
    name: &'a str,
    group: Option<&'a str>,
    names: &'a [&'a str],
    usages: &'a [ExtendedKeyUsagePurpose],
}

impl<'a> Subject<'a> {
    fn server(name: &'a str, names: &'a [&'a str]) -> Self {
        Self { name, group: None, names, usages: &[ExtendedKeyUsagePurpose::ServerAuth] }
    }

    fn client(name: &'a str, group: Option<&'a str>) -> Self {
        Self { name, group, names: &[], usages: &[ExtendedKeyUsagePurpose::ClientAuth] }
    }

    fn both(name: &'a str, names: &'a [&'a str]) -> Self {
        let usages = &[ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        Self { name, group: None, names, usages }
    }

    fn params(&self) -> Result<CertificateParams, Error> {
        let mut params = base(self.name);
        params.subject_alt_names =
            CertificateParams::new(self.names.iter().map(ToString::to_string).collect::<Vec<_>>())?
                .subject_alt_names;
        if let Some(group) = self.group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = self.usages.to_vec();
        params.use_authority_key_identifier_extension = true;
        Ok(params)
    }
}

/// Valid from yesterday's year to ten years from now.
fn base(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let year = i32::from(jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).year());
    params.not_before = date_time_ymd(year - 1, 1, 1);
    params.not_after = date_time_ymd(year + 10, 1, 1);
    params
}
