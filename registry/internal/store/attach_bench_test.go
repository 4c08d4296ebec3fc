// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"sync"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// BenchmarkAttachments measures reserve, connect, complete and release by clients with a volume
// each.
func BenchmarkAttachments(b *testing.B) {
	for _, clients := range []int{1, 1000} {
		b.Run(fmt.Sprint("clients=", clients), func(b *testing.B) {
			s := benchSite(b, clients)
			for n := range clients {
				if _, err := s.Instances.Register(b.Context(), nobody, api.InstanceRegister{
					ID: id(instanceKind, n), Name: fmt.Sprint("i", n), Host: "a", State: api.InstanceRunning,
				}); err != nil {
					b.Fatal(err)
				}
			}
			rounds := make(chan int)
			var wg sync.WaitGroup
			for n := range clients {
				wg.Go(func() {
					for round := range rounds {
						if err := attachCycle(b, s, n, round); err != nil {
							b.Error(err)
						}
					}
				})
			}
			b.ReportAllocs()
			b.ResetTimer()
			for round := range b.N {
				rounds <- round
			}
			close(rounds)
			wg.Wait()
			b.ReportMetric(4*float64(b.N)/b.Elapsed().Seconds(), "changes/s")
		})
	}
}

func attachCycle(b *testing.B, s *Store, n, round int) error {
	a := id(attachmentKind, round)
	call := func() Call { return Call{Who: "bench", Key: key(), Host: &HostToken{ID: hostA, Epoch: 1}} }
	if _, err := s.Attachments.Reserve(b.Context(), call(), api.AttachmentReserve{
		ID: a, VolumeID: id(volumeKind, n), InstanceID: id(instanceKind, n), Device: "vdb", Mode: api.ModeRW, Host: hostA, Epoch: 1, Generation: 1, OpID: "op",
	}); err != nil {
		return err
	}
	from := api.AttachmentReserved
	for _, to := range []api.AttachmentState{api.AttachmentAttaching, api.AttachmentAttached} {
		if _, err := s.Attachments.Transition(b.Context(), call(), a, api.AttachmentTransition{From: []api.AttachmentState{from}, To: to, Host: hostA, Epoch: 1, OpID: "op"}); err != nil {
			return err
		}
		from = to
	}
	_, err := s.Attachments.Release(b.Context(), call(), a, api.AttachmentRelease{Host: hostA, Epoch: 1, OpID: "op", Force: true})
	return err
}
