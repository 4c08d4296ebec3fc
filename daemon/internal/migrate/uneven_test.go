// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

// uneven adds half a KiB to the volume, and sets the cache mode of its disk.
func (d *daemon) uneven(t *testing.T, cache string) {
	t.Helper()
	must(t, d.world.Remove(srcPath))
	must(t, d.world.CreateImage(srcPath, hvtest.Raw, testSize+512))
	d.world.Redefine(t, func(dom *hv.Domain) { dom.Config[0].Cache = cache })
}

// It is refused, before anything is changed, where QEMU could not open it any more.
func TestAVolumeOfAnUnevenSizeGoesWhereQEMUWritesToIt(t *testing.T) {
	for name, c := range map[string]struct {
		cache   string
		align   int64
		target  api.MigrationTarget
		refused bool
	}{
		"filesystem of small blocks":              {"none", 512, toNewPool, false},
		"filesystem of large blocks":              {"none", 4096, toNewPool, true},
		"large blocks, also direct":               {"directsync", 4096, toNewPool, true},
		"large blocks, but by the page cache":     {"writeback", 4096, toNewPool, false},
		"large blocks, by the default, the cache": {"", 4096, toNewPool, false},
		"mirrored to what begins with a hole":     {"none", 512, mirrorToNewPool, true},
		"qcow2, which is always even":             {"none", 4096, api.MigrationTarget{ToPool: "new", ToFormat: api.FormatQcow2}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
				d.uneven(t, c.cache)
				d.world.Images.AlignBytes = c.align
				must(t, d.world.Start(testInstance))
				_, err := d.manager().Plan(context.Background(), testVolume, c.target)
				if c.refused {
					if api.CodeOf(err) != api.CodeSizeMismatch || !strings.Contains(err.Error(), "volume resize vol --size ") {
						t.Errorf("got %v, want size_mismatch, with what to do", err)
					}
					_, err = d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: c.target})
				}
				if (err != nil) != c.refused {
					t.Errorf("got %v, want refused: %t", err, c.refused)
				}
			})
		})
	}
}

// A hole could not be distinguished from a volume that begins with zeros.
func TestACopyOfAnUnevenSizeDoesNotBeginWithAHole(t *testing.T) {
	for _, even := range []bool{false, true} {
		inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
			if !even {
				d.uneven(t, "none")
			}
			mig := d.until(d.migrate(), api.MigrationCompleted)
			if filled := d.world.Images.Filled; (len(filled) == 1 && filled[0] == mig.Dst.Path) == even {
				t.Errorf("even: %t, a first block was given to %q", even, filled)
			}
		})
	}
}
