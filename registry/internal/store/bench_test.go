// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
)

// benchWorkers is the number of concurrent clients that fill a site; waiting changes share a
// commit.
const benchWorkers = 256

// benchSite returns a registry with a host and many volumes on it.
func benchSite(b *testing.B, volumes int) *Store {
	b.Helper()
	s, err := Open(b.Context(), filepath.Join(b.TempDir(), "registry.db"), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	if _, err := s.Reports.Receive(b.Context(), nobody, reportOfFast()); err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	for worker := range benchWorkers {
		wg.Go(func() {
			for n := worker; n < volumes; n += benchWorkers {
				if _, err := s.Volumes.Register(b.Context(), nobody, api.VolumeRegister{
					ID: id(volumeKind, n), Name: fmt.Sprint("v", n), Status: api.VolumeAvailable, Host: "a", Location: at(fmt.Sprint("/fast/", n)),
				}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	return s
}

// key returns an op id like a daemon's.
func key() string { return uuid.NewString() }
