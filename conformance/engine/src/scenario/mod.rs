//! The scenario language: text with places ([`raw`]) is lifted into the checked model ([`model`], [`step`]).
mod count;
mod de;
pub mod model;
mod object;
pub(crate) mod raw;
pub mod step;
mod vars;

pub use count::{Count, NodeCount};
pub use model::*;
pub use object::{Expected, Manifest, Manifests, ObjectName, Target};
pub use step::*;
pub use vars::{SubstituteError, Vars, substitute};
