//! Clusters to test on: an embedded control plane, or any kubeconfig.
