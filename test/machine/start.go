// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/volferry/volferry/test/lab"
)

// Start makes a machine and boots it. Nothing of it is left when the test ends; if the
// test failed, its log has the end of the machine's journal.
func Start(tb testing.TB, cfg Config) *Machine {
	tb.Helper()
	Require(tb)
	m, err := New(tb.Context(), filepath.Join(lab.TempDir(tb), cfg.Name), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			// The context of the test has ended.
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			journal, err := m.Journal(ctx, "--lines=300", "--output=short-precise")
			tb.Logf("=== journal of machine %s: %v\n%s", m.Name, err, journal)
		}
		if err := m.Close(); err != nil {
			tb.Error(err)
		}
	})
	if err := m.Boot(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return m
}

// Connect makes a network with these machines in it, each with its address. It is
// removed when the test ends.
func Connect(tb testing.TB, address map[*Machine]string) *Network {
	tb.Helper()
	n, err := NewNetwork(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := n.Close(); err != nil {
			tb.Error(err)
		}
	})
	for m, a := range address {
		if err := n.Connect(tb.Context(), m, a); err != nil {
			tb.Fatal(err)
		}
	}
	return n
}
