//! The scenario language, in one pass: parse low, lift high.
//!
//! `raw` makes a tree of the text in which everything knows its place, `vars` replaces variables in that tree, `de` lets
//! serde read typed values out of it, `lift` puts a [`Scenario`] together with everything that is wrong, `usage` and
//! `lint` hold the rules. The grammar is the serde shape of [`Step`] and what it contains, and nothing else.

pub mod actions;
pub mod checks;
mod count;
pub(crate) mod de;
pub(crate) mod lift;
mod lint;
pub mod model;
mod object;
pub(crate) mod raw;
pub mod step;
mod usage;
mod vars;

pub use actions::*;
pub use checks::*;
pub use count::{Count, NodeCount};
pub use model::*;
pub use object::{Expected, Manifest, Manifests, ObjectName, Target};
pub use step::*;
pub(crate) use vars::replace;
pub use vars::{SubstituteError, Vars, substitute};
