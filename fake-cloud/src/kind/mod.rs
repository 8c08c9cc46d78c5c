//! Nodes that are containers of a kind cluster: what a container looks like, how it joins, and the Docker client.
//!
//! Nothing in a node image knows of us. A container boots as any node of kind does; then one script in it shows the kubelet
//! the size of the instance that was bought, and has kubeadm join the cluster.

mod docker;
mod join;
mod machine;

pub(crate) use docker::last_lines;
pub use docker::{Docker, Error, Machine, Template};
pub use join::{Join, Size, may_be_set_by_kubelet};
pub use machine::{ATTEMPT, BACKEND, Owner, container, container_name};
