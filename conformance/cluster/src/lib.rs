//! Clusters to test on: an embedded control plane, or any kubeconfig. Linux only (`x86_64`, `arm64`).
//!
//! | module | what it does |
//! |---|---|
//! | [`binaries`] | finds, downloads or builds etcd, kube-apiserver, kube-controller-manager and kube-scheduler |
//! | [`supervisor`] | the process that owns one control plane and the subject's processes on it |
//! | [`control`] | what can be asked of a running supervisor |
//! | [`clusters`] | starts, finds, stops and sweeps supervisors |
//! | [`shim`] | starts a child so that it dies with the supervisor |
//! | [`lease`] | which scenario may use which plane, and when |
//! | [`owner`] | ends a test process with its test runner |
//! | [`existing`] | a cluster that somebody else made |
//!
//! The crate knows nothing of the API under test: CRDs and processes come from the caller. The caller's binary offers
//! two hidden entry points that call [`supervisor::serve`] and [`shim::run`].

pub mod binaries;
mod child;
pub mod clusters;
mod config;
pub mod control;
mod error;
pub mod existing;
mod files;
pub mod kind;
pub mod lease;
pub mod owner;
mod pki;
mod plane;
mod ports;
mod process;
mod ready;
pub mod shim;
pub mod supervisor;

pub use config::{ChildConfig, ServeConfig};
pub use error::Error;
pub use kind::KindConfig;
