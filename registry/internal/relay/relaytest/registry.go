// SPDX-License-Identifier: Apache-2.0

package relaytest

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/storetest"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// Kit fills the stores of registries.
var Kit = storetest.Site[*workflow.Store, store.Call, store.Viewer]{
	Open: func(ctx context.Context, path string) (*workflow.Store, error) {
		return workflow.Open(ctx, path, store.Options{})
	},
	Parts: func(s *workflow.Store) storetest.Parts[store.Call, store.Viewer] {
		return storetest.Parts[store.Call, store.Viewer]{
			Reports: s.Reports, Hosts: s.Hosts, Instances: s.Instances, Types: s.Types, Policies: s.Policies, Volumes: s.Volumes,
			Migrations: s.Migrations, Attachments: s.Attachments, Marks: s.Marks, Trail: s.Trail,
		}
	},
}

// Registry is a store with its relay. It can be closed and reopened.
type Registry struct {
	T     *testing.T
	Store *workflow.Store
	Relay *relay.Relay
	// Path is the file of the database.
	Path string
	// There is write-locked while the registry is closed.
	There sync.RWMutex
}

// Open opens the registry.
func (r *Registry) Open() {
	r.T.Helper()
	r.Store = expect.Value(Kit.Open(context.Background(), r.Path))(r.T)
	r.Relay = relay.New(relay.Config{Tasks: r.Store.Tasks, Hosts: r.Store.Hosts, Trail: r.Store.Trail, Log: slog.New(slog.DiscardHandler)})
}

// Close closes the registry. Its loop must have ended.
func (r *Registry) Close() {
	r.Relay.Close()
	if err := r.Store.Close(); err != nil {
		r.T.Error(err)
	}
}
