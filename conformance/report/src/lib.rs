//! The result model of a conformance run and everything rendered from it.
//!
//! `report.json` is the only source: the table, JUnit, Markdown, HTML and badge are functions of it.

pub mod model;
