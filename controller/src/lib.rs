//! The reference CapacityBuffer, NodePool and NodeClaim controllers: the shell around [`buffer_core`].
//!
//! ```text
//! watches ─▶ convert ─▶ cache (slim values, own writes overlaid) ─▶ buffer_core::plan ─▶ writes
//!                         ▲                                                               │
//!                         └──────────────────────── answers ──────────────────────────────┘
//! ```
//!
//! Everything that decides is in `buffer_core` and is a pure function. Here are the clock, the watches, the writes, retries,
//! metrics and the admin port:
//!
//! * `convert`: API objects → slim core types; full objects are dropped at once.
//! * `cache`: what is known of the cluster, ordered by resource version, own writes included before the watch shows them.
//! * `watch`: one task a kind.
//! * `write`: a plan's writes, grouped by object, and how each is sent.
//! * `run`: the loop that says when to plan, and carries plans out.
//! * `leader`: who may write, and the fence that keeps the others from it.
//! * `admin`, `metrics`, `events`, `backoff`: what their names say.

mod admin;
mod backoff;
mod cache;
mod config;
mod convert;
mod error;
mod events;
mod kind;
mod leader;
mod logging;
mod metrics;
mod run;
mod watch;
mod write;

pub use config::{Config, FeatureGates, ParseFeatureGatesError};
pub use error::Error;
pub use leader::Timing;
pub use logging::{LogFormat, init_logging};
pub use run::run;
pub use tokio_util::sync::CancellationToken;
