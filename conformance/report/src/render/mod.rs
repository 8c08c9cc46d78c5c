//! What people and other programs read, each a function of the report.

mod axis;
mod badge;
mod compare;
mod html;
mod junit;
mod lanes;
mod markdown;
mod table;
mod words;

use std::path::Path;

pub use compare::Comparison;
pub use table::TableStyle;

use crate::error::ReportError;
use crate::fragment::write_atomically;
use crate::model::Report;

impl Report {
    /// Writes `report.json`, `junit.xml`, `index.html`, `summary.md` and `badge.json` into a folder that exists.
    pub fn write_all(&self, folder: &Path) -> Result<(), ReportError> {
        for (name, text) in [
            ("report.json", self.to_json()?),
            ("junit.xml", self.to_junit()?),
            ("index.html", self.to_html()?),
            ("summary.md", self.to_markdown()),
            ("badge.json", self.to_badge()?),
        ] {
            write_atomically(&folder.join(name), &text)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;
    use crate::samples;

    #[test]
    fn all_files_are_written_and_the_json_is_the_report() {
        let folder = tempfile::tempdir().unwrap();
        let report = samples::full();
        report.write_all(folder.path()).unwrap();
        let names: BTreeSet<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|f| f.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(
            names,
            ["badge.json", "index.html", "junit.xml", "report.json", "summary.md"].map(String::from).into()
        );
        let json = fs::read_to_string(folder.path().join("report.json")).unwrap();
        assert_eq!(Report::from_json(&json).unwrap(), report);
    }

    /// Whoever accepts a snapshot must not publish the machine it was made on.
    #[test]
    fn snapshots_name_neither_hosts_nor_paths() {
        let here = env!("CARGO_MANIFEST_DIR");
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let home = std::env::var("HOME").unwrap_or_default();
        let temporary = std::env::temp_dir();
        let mut forbidden = vec!["/home/", "/Users/", "127.0.0.1", here];
        // A host called `node` would be found in any report, and `/` in any link.
        forbidden.extend([host.trim()].into_iter().filter(|host| host.len() > 8));
        forbidden.extend([&home, temporary.to_str().unwrap()].into_iter().filter(|path| path.len() > 3));
        let folder = Path::new(here).join("src/render/snapshots");
        let mut seen = 0;
        for file in fs::read_dir(folder).unwrap() {
            let text = fs::read_to_string(file.unwrap().path()).unwrap();
            for word in &forbidden {
                assert!(!text.contains(word), "{word} in a snapshot");
            }
            seen += 1;
        }
        assert!(seen >= 6, "{seen} snapshots");
    }
}
