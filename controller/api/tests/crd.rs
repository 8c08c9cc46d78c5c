//! Facts of the generated CustomResourceDefinitions, and the freshness of the committed files.

use std::{env, fs, path::PathBuf};

use buffer_api::crd;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

/// Folder of the committed CRD files.
fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "chart", "crds"].iter().collect()
}

fn file_text(crd: &CustomResourceDefinition) -> String {
    format!(
        "# Generated from the types of buffer-api; `make generate` writes it.\n{}",
        serde_yaml::to_string(crd).unwrap()
    )
}

#[test]
fn committed_files_are_fresh() {
    let generate = env::var_os("BUFCONF_GENERATE").is_some_and(|value| value == "1");
    let mut expected = Vec::new();
    for crd in crd::all() {
        let name = format!("{}.yaml", crd.metadata.name.as_deref().unwrap());
        let path = folder().join(&name);
        if generate {
            fs::create_dir_all(folder()).unwrap();
            fs::write(&path, file_text(&crd)).unwrap();
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        similar_asserts::assert_eq!(committed, file_text(&crd), "{name} is stale; run `make generate`");
        expected.push(name);
    }
    let mut found: Vec<_> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    assert_eq!(found, expected, "every file in the folder is generated, and all are there");
}
