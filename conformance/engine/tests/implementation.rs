//! Declarations of implementations: what is read, and what is refused with which message.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::{fs, path::Path};

use conformance_engine::{
    catalogue::Catalogue,
    implementation::{Dialect, Implementation, Setting, Supply},
};
use rstest::rstest;

const GOOD: &str = "\
apiVersion: bufconf.dev/v1alpha1
kind: Implementation
identity: {organization: o, project: p, url: u, version: 1.2.3}
dialect: karpenter
profiles: [BUFFER-API]
features: [ObservedGeneration]
parallelSafe: true
exemptions: [{scenario: CB-RES-010, reason: known, link: there, expires: 2027-01-01}]
settings: [gate]
hooks: {health: [curl, -f, localhost], restart: [systemctl, restart, it]}
pools:
  - shape: {cpu: 1900m, memory: 3840Mi, pods: 32}
    maxNodes: 200
    create:
      - {apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: \"p-${pool}\"}}
";

fn refusal(text: &str, catalogue: Option<&Catalogue>) -> String {
    let diagnostics = Implementation::parse("i.yaml", text, catalogue).err().unwrap_or_default();
    diagnostics
        .iter()
        .map(|diagnostic| diagnostic.to_string().lines().next().unwrap().to_owned() + "\n")
        .collect()
}

#[test]
fn a_declaration_is_read() {
    let implementation = Implementation::parse("i.yaml", GOOD, None).unwrap();
    assert_eq!(implementation.identity.version, "1.2.3");
    assert_eq!(implementation.dialect, Some(Dialect::Karpenter));
    assert_eq!(implementation.settings, [Setting::Gate]);
    assert_eq!(implementation.hooks.len(), 2);
    assert_eq!(implementation.exemptions[0].expires.to_string(), "2027-01-01");
    let pool = &implementation.pools[0];
    assert!(matches!(&pool.supply, Supply::Create(manifests) if manifests.len() == 1));
    assert!(!pool.unique_hostnames, "what is not claimed is not there");
}

#[test]
fn the_shipped_declarations_are_sound() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci/implementations");
    let mut read = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            assert_eq!(refusal(&fs::read_to_string(&path).unwrap(), None), "", "{}", path.display());
            read += 1;
        }
    }
    assert!(read > 0);
}

#[rstest]
#[case(
    "profiles: [BUFFER-API]",
    "profiles: [BUFER-API]",
    "i.yaml:5:12: unknown profile `BUFER-API`, did you mean `BUFFER-API`?\n"
)]
#[case("features:", "feature:", "i.yaml:6:1: unknown key `feature`, did you mean `features`?\n")]
#[case(
    "ObservedGeneration",
    "ObservedGen",
    "i.yaml:6:12: unknown feature `ObservedGen`, expected one of `ServedV1alpha1`"
)]
#[case("[gate]", "[gates]", "i.yaml:9:12: unknown setting `gates`, did you mean `gate`?\n")]
#[case(
    "restart: [systemctl",
    "restrat: [systemctl",
    "i.yaml:10:40: unknown hook `restrat`, did you mean `restart`?\n"
)]
#[case("[curl, -f, localhost]", "[]", "i.yaml:10:17: a hook is a program and its arguments\n")]
#[case("[curl, -f, localhost]", "curl", "i.yaml:10:17: expected a list, found the text `curl`\n")]
#[case("cpu: 1900m", "cpu: much", "i.yaml:12:18: \"much\" is not a quantity\n")]
#[case("cpu: 1900m", "cpu: 0", "i.yaml:12:18: 0 is not more than zero\n")]
#[case("2027-01-01", "soon", "i.yaml:8:74: `soon` is not a date such as 2027-01-31\n")]
#[case("reason: known", "reason: ''", "i.yaml:8:45: an exemption needs a reason\n")]
#[case(
    "p-${pool}",
    "default",
    "i.yaml:15:72: every pool is made anew: the name must contain `${pool}` or `${run}`\n"
)]
#[case(
    "p-${pool}",
    "${pool}-${namespace}",
    "i.yaml:15:72: unknown variable `${namespace}`; a pool has `${pool}` and `${run}`\n"
)]
#[case(
    "    create:\n",
    "    slots: [{name: a}, {name: a}]\n    create:\n",
    "i.yaml:12:5: say where the pool comes from: either `create` or `slots`\ni.yaml:14:31: the slot `a` is here twice\n"
)]
#[case("kind: NodePool, ", "", "i.yaml:15:9: `kind` is missing\n")]
#[case("kind: Implementation", "kind: Scenario", "i.yaml:2:7: unknown kind `Scenario`")]
#[case(GOOD, "", "i.yaml:1:1: expected a map of keys, found nothing\n")]
fn is_refused(#[case] what: &str, #[case] by: &str, #[case] said: &str) {
    assert!(GOOD.contains(what));
    let text = GOOD.replacen(what, by, 1);
    let refusal = refusal(&text, None);
    assert!(if said.ends_with('\n') { refusal == said } else { refusal.starts_with(said) }, "{refusal}");
}

#[test]
fn an_exemption_names_a_scenario_of_the_catalogue() {
    let said = refusal(GOOD, Some(&Catalogue::default()));
    assert_eq!(said, "i.yaml:8:25: there is no scenario `CB-RES-010`\n");
}
