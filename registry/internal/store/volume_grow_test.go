// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

func TestAVolumeGrowsByTheWordOfItsHostAndNeverShrinks(t *testing.T) {
	s := newCluster(t)
	before := must(s.Volumes.Get(t.Context(), data, everyone))(t)
	if before.SizeChangedAt != nil {
		t.Errorf("size changed at %v", before.SizeChangedAt)
	}
	grow := func(from, to int64) (api.Volume, error) {
		return s.Volumes.Grow(t.Context(), nobody, data, api.VolumeGrow{FromBytes: from, SizeBytes: to})
	}
	size := before.SizeBytes
	wantCode(t, second(grow(size, size-512)), api.CodeInvalidArgument, "only grown")
	wantCode(t, second(grow(size, size+1)), api.CodeInvalidArgument, "512")
	wantCode(t, second(grow(size+512, 2*size)), api.CodeConflict, "no longer")
	after := must(grow(size, 2*size))(t)
	if after.SizeBytes != 2*size || after.Location.SizeBytes != 2*size || after.SizeChangedAt == nil {
		t.Errorf("the volume is %+v", after)
	}
	must(grow(size, 2*size))(t) // it has that size: another look reports the same
}

func TestAVolumeThatMovesKeepsItsSizeUntilThatIsOver(t *testing.T) {
	s := newCluster(t)
	moving(diskMigration())(t, s)
	v := must(s.Volumes.Get(t.Context(), disk, everyone))(t)
	_, err := s.Volumes.Grow(t.Context(), nobody, disk, api.VolumeGrow{FromBytes: v.SizeBytes, SizeBytes: 2 * v.SizeBytes})
	wantCode(t, err, api.CodeMigrationActive, "moving it")
}

// The image is larger than the volume, which is no growth. A resize takes more of the image, and
// finally all of it.
func TestWhatIsBehindAVolumeIsNotTakenForGrowth(t *testing.T) {
	s := newCluster(t)
	size := must(s.Volumes.Get(t.Context(), disk, everyone))(t).SizeBytes
	if _, err := s.sqlite.Write.ExecContext(t.Context(), "UPDATE locations SET image_bytes = ? WHERE volume_id = ?", 3*size, disk); err != nil {
		t.Fatal(err)
	}
	_, err := s.Volumes.Grow(t.Context(), nobody, disk, api.VolumeGrow{FromBytes: size, SizeBytes: 3 * size})
	wantCode(t, err, api.CodeStateForbidden, "the beginning of what is at /nfs/disk")
	for _, want := range []struct{ size, image int64 }{{2 * size, 3 * size}, {3 * size, 0}} {
		resizing(disk, hostA)(t, s)
		must(s.Volumes.EndResize(t.Context(), nobody, disk, api.VolumeResizeEnd{Host: hostA, Epoch: 1, OpID: "op-r", SizeBytes: want.size}))(t)
		if v := must(s.Volumes.Get(t.Context(), disk, everyone))(t); v.SizeBytes != want.size || v.Location.ImageBytes != want.image {
			t.Errorf("the volume is %+v, want %d bytes of %d", v.Location, want.size, want.image)
		}
	}
}
