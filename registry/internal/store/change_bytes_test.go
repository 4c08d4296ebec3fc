// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/ratelimit"
)

// cloneOf returns a volume of host a with this many base images.
func cloneOf(n, images, pathBytes int) api.VolumeRegister {
	l := at("/fast/clone")
	l.Path, l.Name, l.Pool, l.Format = fmt.Sprintf("/elsewhere/clone-%d", n), "", "", api.FormatQcow2
	var below []api.BaseImage
	for i := range images {
		below = append(below, api.BaseImage{Path: fmt.Sprintf("/bases/%d-%s", i, strings.Repeat("x", pathBytes)), Format: api.FormatQcow2})
	}
	l.Backing = api.NewBacking(below)
	return api.VolumeRegister{ID: id(volumeKind, 100+n), Name: fmt.Sprintf("clone-of-%d", n), Host: "a", Status: api.VolumeAvailable, Location: l}
}

func databaseBytes(t *testing.T, s *Store) (bytes int64) {
	t.Helper()
	if err := s.sqlite.Read.QueryRowContext(t.Context(), "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()").Scan(&bytes); err != nil {
		t.Fatal(err)
	}
	return bytes
}

func TestALocationWithManyLongBaseImagesIsRefused(t *testing.T) {
	s := newSite(t)
	wantCode(t, second(s.Volumes.Register(t.Context(), as(hostA, 1), cloneOf(1, 200, 4000))), api.CodeInvalidArgument, "may have 65536")
	must(s.Volumes.Register(t.Context(), as(hostA, 1), cloneOf(1, 200, 150)))(t)
}

// Each register and forget leaves rows in the trail and the kept answers.
func TestWhatOneHostAddsIsBoundedInBytes(t *testing.T) {
	s := newSite(t)
	s.changeBytes = ratelimit.NewBytes(1, 1<<20)
	before := databaseBytes(t, s)
	refused := 0
	for n := range 60 {
		call := as(hostA, 1)
		call.Key = fmt.Sprint("key-", n)
		_, err := s.Volumes.Register(t.Context(), call, cloneOf(n, 100, 400))
		if err != nil {
			wantCode(t, err, api.CodeRegistryUnavailable, "try again later")
			refused++
			continue
		}
		call.Key += ".forget"
		if _, err := s.Volumes.Forget(t.Context(), call, id(volumeKind, 100+n)); err != nil {
			wantCode(t, err, api.CodeRegistryUnavailable, "try again later")
		}
	}
	if grown := databaseBytes(t, s) - before; refused < 40 || grown > 2<<20 {
		t.Errorf("%d of 60 were refused, and the database grew by %d bytes", refused, grown)
	}
	must(s.Types.Create(t.Context(), nobody, api.VolumeTypeCreate{Name: "silver"}))(t) // an operator has no limit
}

// A large host has 500 instances with 20 disks each.
func TestTheAdoptionOfALargeHostIsWithinItsBytes(t *testing.T) {
	s := newSite(t)
	s.changeBytes = ratelimit.NewBytes(1, changeBytesAtOnce/100)
	for n := range 5 {
		in := api.InstanceRegister{ID: id(instanceKind, 100+n), Name: fmt.Sprint("large-", n), Host: "a", State: api.InstanceRunning}
		for d := range 20 {
			k := 100 + 20*n + d
			in.Disks = append(in.Disks, api.AdoptedDisk{
				VolumeID: id(volumeKind, k), VolumeName: fmt.Sprintf("large-%d-vd%c", n, 'a'+d), AttachmentID: id(attachmentKind, k), Device: fmt.Sprintf("vd%c", 'a'+d), Mode: api.ModeRW,
				Location: at(fmt.Sprintf("/fast/large-%d-%d", n, d)),
			})
		}
		call := as(hostA, 1)
		call.Key = fmt.Sprint("adopt-", n)
		must(s.Instances.Register(t.Context(), call, in))(t)
	}
}

func TestAnEventKeepsNoEndlessDetails(t *testing.T) {
	s := newSite(t)
	_, err := Mutate(t.Context(), s.DB, nobody, "test", nil, func(ctx context.Context, tx *Tx) (struct{}, error) {
		return struct{}{}, tx.Audit(ctx, api.Event{What: "test", Details: map[string]any{"x": strings.Repeat("x", ledger.MaxEventDetails)}})
	})
	if err != nil {
		t.Fatal(err)
	}
	if b := must(json.Marshal(lastEvent(t, s)))(t); len(b) > 1000 || !strings.Contains(string(b), "details_left_out_bytes") {
		t.Errorf("the event has %d bytes", len(b))
	}
}
