//go:build components

// Package karpenterkwok pins the command that `go build` is asked for; it has no code of its own.
package karpenterkwok

import (
	_ "sigs.k8s.io/karpenter/kwok"
)
