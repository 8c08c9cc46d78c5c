//! The scenario language: text with places ([`raw`]) is lifted into the checked model ([`model`], [`step`]).
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
