// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
)

// benchWorkers fill a site; changes that wait share a commit.
const benchWorkers = 256

// benchSite is a registry with a host and many volumes on it.
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
	if _, err := s.Report(b.Context(), nobody, api.HostReport{ID: hostA, Name: "a"}); err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	for worker := range benchWorkers {
		wg.Go(func() {
			for n := worker; n < volumes; n += benchWorkers {
				if _, err := s.RegisterVolume(b.Context(), nobody, api.VolumeRegister{
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

func key() string { return uuid.Must(uuid.NewV7()).String() }

func swap(b *testing.B, s *Store, volume string) {
	for _, t := range []api.VolumeTransition{{From: api.VolumeAvailable, To: api.VolumeError}, {From: api.VolumeError, To: api.VolumeAvailable}} {
		if _, err := s.TransitionVolume(b.Context(), Call{Who: "bench", Key: key()}, volume, t); err != nil {
			b.Error(err)
		}
	}
}

func BenchmarkChanges(b *testing.B) {
	for _, clients := range []int{1, 256} {
		b.Run(fmt.Sprint("clients=", clients), func(b *testing.B) {
			s := benchSite(b, 1000)
			var next atomic.Int64
			b.SetParallelism(max(clients/2, 1))
			b.ReportAllocs()
			b.ResetTimer()
			if clients == 1 {
				for n := 0; b.Loop(); n++ {
					swap(b, s, id(volumeKind, n%1000))
				}
			} else {
				b.RunParallel(func(pb *testing.PB) {
					v := int(next.Add(1))
					for pb.Next() {
						swap(b, s, id(volumeKind, v))
					}
				})
			}
			b.ReportMetric(float64(2*b.N)/b.Elapsed().Seconds(), "changes/s")
		})
	}
}
