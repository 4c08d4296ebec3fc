// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

// withSlice is withVolume for a volume that is the first half of its image.
func (w *world) withSlice(t *testing.T, who holder) api.Volume {
	t.Helper()
	vol := w.withVolume(t, stopped)
	must(t, w.GrowImage(vol.Location.Path, grownSize))
	slice := hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: vol.Location.Path, SliceBytes: testSize}
	must(t, w.SetConfigChain(t.Context(), guestID, "vdb", []hv.Image{slice}))
	if who == running {
		must(t, w.Start(guestID))
	}
	return w.edit(vol.ID, func(v *api.Volume) {
		v.Location.ImageBytes = grownSize
		if who == nobody {
			must(t, w.Undefine(guestID))
			v.Status, v.Attachments = api.VolumeAvailable, nil
		}
	})
}

func TestAVolumeThatIsTheBeginningOfALargerImageGetsMoreOfIt(t *testing.T) {
	for _, who := range []holder{nobody, stopped} {
		for _, size := range []int64{testSize + hvtest.BlockSize, grownSize} {
			t.Run(string(who), func(t *testing.T) {
				w := newWorld(t)
				vol := w.withSlice(t, who)
				m := w.start(t)
				got, err := m.Resize(t.Context(), uuid.NewString(), vol.ID, api.VolumeResize{SizeBytes: size})
				must(t, err)
				if got.SizeBytes != size {
					t.Errorf("the volume has %d bytes, want %d", got.SizeBytes, size)
				}
				if info, err := w.Info(vol.Location.Path); err != nil || info.SizeBytes != grownSize {
					t.Errorf("the image has %d bytes, %v; it was not to be touched", info.SizeBytes, err)
				}
				if who == nobody {
					return
				}
				dom, err := w.Domain(t.Context(), guestID)
				must(t, err)
				want := size
				if size == grownSize {
					want = 0 // the volume is the whole image
				}
				if top := dom.ConfigDisk("vdb").Top(); top.SliceBytes != want {
					t.Errorf("the definition has a slice of %d bytes, want %d", top.SliceBytes, want)
				}
			})
		}
	}
}

// TestAResizeThatWasCutOffAfterTheDefinitionIsAskedForAgain: the registry has the old size, the
// definition a size that a guest may have seen since.
func TestAResizeThatWasCutOffAfterTheDefinitionIsAskedForAgain(t *testing.T) {
	const more = testSize + 2*hvtest.BlockSize
	for name, c := range map[string]struct {
		has, asked int64
		runs       bool
		code       api.Code
	}{
		"for the same":                            {has: more, asked: more},
		"for the same, and its guest runs":        {has: more, asked: more, runs: true},
		"for all of it":                           {has: grownSize, asked: grownSize},
		"for more":                                {has: more, asked: more + hvtest.BlockSize},
		"for more, up to all of it":               {has: more, asked: grownSize},
		"for more, and its guest runs":            {has: more, asked: grownSize, runs: true, code: api.CodeUnsupportedDisk},
		"for less":                                {has: more, asked: more - hvtest.BlockSize, code: api.CodeInvalidArgument},
		"for less than the all of it that it has": {has: grownSize, asked: more, code: api.CodeInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			vol := w.withSlice(t, stopped)
			img := hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: vol.Location.Path}
			if c.has < grownSize {
				img.SliceBytes = c.has
			}
			must(t, w.SetConfigChain(t.Context(), guestID, "vdb", []hv.Image{img}))
			if c.runs {
				must(t, w.Start(guestID))
			}
			got, err := w.start(t).Resize(t.Context(), uuid.NewString(), vol.ID, api.VolumeResize{SizeBytes: c.asked})
			if api.CodeOf(err) != c.code || err == nil && got.SizeBytes != c.asked {
				t.Errorf("the volume has %d bytes, %v; want %d, %q", got.SizeBytes, err, c.asked, c.code)
			}
		})
	}
}

// TestABeginningOfWhatHasGrownIsGivenLessThanItWasOrAllOfIt: the registry has the old size of the
// whole image.
func TestABeginningOfWhatHasGrownIsGivenLessThanItWasOrAllOfIt(t *testing.T) {
	const whole = grownSize + 4*hvtest.BlockSize
	for size, code := range map[int64]api.Code{
		grownSize - hvtest.BlockSize: "", whole: "",
		grownSize: api.CodeUnsupportedDisk, grownSize + hvtest.BlockSize: api.CodeUnsupportedDisk,
	} {
		w := newWorld(t)
		vol := w.withSlice(t, stopped)
		must(t, w.GrowImage(vol.Location.Path, whole))
		_, err := w.start(t).Resize(t.Context(), uuid.NewString(), vol.ID, api.VolumeResize{SizeBytes: size})
		if api.CodeOf(err) != code {
			t.Errorf("%d bytes: %v, want %q", size, err, code)
		}
	}
}

func TestABeginningIsNotMadeLargerThanItsImageNorUnderARunningGuest(t *testing.T) {
	for who, size := range map[holder]int64{stopped: grownSize + 512, nobody: grownSize + 512, running: grownSize} {
		t.Run(string(who), func(t *testing.T) {
			w := newWorld(t)
			vol := w.withSlice(t, who)
			m := w.start(t)
			_, err := m.Resize(t.Context(), uuid.NewString(), vol.ID, api.VolumeResize{SizeBytes: size})
			if api.CodeOf(err) != api.CodeUnsupportedDisk {
				t.Errorf("got %v, want unsupported_disk", err)
			}
		})
	}
}
