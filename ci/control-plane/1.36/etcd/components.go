//go:build components

// Package etcd pins the command that `go build` is asked for; it has no code of its own.
package etcd

import (
	_ "go.etcd.io/etcd/server/v3"
)
