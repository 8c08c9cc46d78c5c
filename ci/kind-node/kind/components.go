//go:build components

// Package kind pins the commands that `go build` is asked for; it has no code of its own.
package kind

import (
	_ "sigs.k8s.io/kind"
)
