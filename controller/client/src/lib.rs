//! The one place that makes a Kubernetes client: loopback-fast, HTTP/2.
