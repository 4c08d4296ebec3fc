// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// Another host has moved the volume on. This host's journal is old, and its place must not count.
func TestWhichDoesNotTakeAnOldMoveForTheTruth(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		d.until(d.migrate(), api.MigrationCompleted)
		vol := d.world.Registry.CurrentVolume()
		vol.Attachments, vol.Location.Path = nil, "/shared/vol.raw"
		w, err := d.manager().Which.Find(context.Background(), vol)
		must(t, err)
		if w.Agree || w.Authoritative != nil {
			t.Errorf("agree %v, authoritative %v, want neither", w.Agree, w.Authoritative)
		}
	})
}

// Only the registry knows a reserved attachment: no instance has a disk for it, and the instance
// that has the disk decides, in any order.
func TestWhichAsksTheInstanceThatHasTheDisk(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		vol := d.world.Registry.CurrentVolume()
		reserved := api.Attachment{ID: "reserved", VolumeID: vol.ID, InstanceID: "another", DiskAttachment: api.DiskAttachment{Device: "vdz"}, State: api.AttachmentReserved}
		holder := vol.Attachments
		vol.Attachments = append([]api.Attachment{reserved}, holder...)
		w, err := d.manager().Which.Find(context.Background(), vol)
		must(t, err)
		if !w.Agree || w.Live == nil {
			t.Errorf("agree %v with %v, want the instance that has it asked", w.Agree, w.Live)
		}
		for _, state := range []api.AttachmentState{api.AttachmentReserved, api.AttachmentAttaching, api.AttachmentDetaching} {
			reserved.State = state
			vol.Attachments = []api.Attachment{reserved}
			if w, err = d.manager().Which.Find(context.Background(), vol); err != nil || !w.Agree {
				t.Errorf("%s alone: agree %v (%s), %v", state, w.Agree, w.Explanation, err)
			}
		}
	})
}

// The instance is on the shelf and on no host: no process has the image open, and it is where the
// registry has it.
func TestWhichOfAVolumeOnTheShelfNamesItsImage(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		vol := shelved(d.world.Registry.CurrentVolume())
		w, err := d.manager().Which.Find(context.Background(), vol)
		must(t, err)
		if !w.Agree || len(w.Authoritative) != 1 || w.Authoritative[0].Path != vol.Location.Path || !strings.Contains(w.Explanation, "shelved_offloaded") {
			t.Errorf("agree %v, authoritative %v (%s), want the image of the registry", w.Agree, w.Authoritative, w.Explanation)
		}
		d.until(d.migrate(), api.MigrationCompleted)
		if w, err = d.manager().Which.Find(context.Background(), vol); err != nil || w.Agree || w.Authoritative != nil {
			t.Errorf("moved here since: agree %v, authoritative %v, %v, want neither", w.Agree, w.Authoritative, err)
		}
	})
}

// shelved returns a volume with an instance on no host.
func shelved(vol api.Volume) api.Volume {
	vol.Attachments = slices.Clone(vol.Attachments)
	vol.Attachments[0].Host, vol.Attachments[0].InstanceID = "", "00000000-0000-4000-8000-00000000cafe"
	return vol
}

// Registry, journal and definition agree on a path in a filesystem that is not mounted.
func TestWhichNamesNoImageThatIsNotThere(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		attached := d.world.Registry.CurrentVolume()
		free, elsewhere, export := attached, shelved(attached), attached
		free.Attachments = nil
		elsewhere.Host = "elsewhere"
		export.Attachments, export.Location.Path = nil, "nbd+unix:///export?socket=/run/gone.sock"
		which := func(vol api.Volume) api.Which {
			t.Helper()
			w, err := d.manager().Which.Find(context.Background(), vol)
			must(t, err)
			return w
		}
		must(t, d.world.Remove(srcPath))
		for _, vol := range []api.Volume{attached, free, shelved(attached)} {
			namesNothing(t, which(vol), "there is no image at "+srcPath+": is its filesystem mounted?")
		}
		for name, vol := range map[string]api.Volume{"of another host": elsewhere, "an export": export} {
			if w := which(vol); !w.Agree || w.Authoritative == nil {
				t.Errorf("%s: agree %v, authoritative %v (%s), want what the records agree on", name, w.Agree, w.Authoritative, w.Explanation)
			}
		}
	})
}

// The instance is on another host that sees the image: a domain of this host does not have that
// instance's disk.
func TestWhichNamesTheHostOfAnInstanceThatIsElsewhere(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		vol := shelved(d.world.Registry.CurrentVolume())
		vol.Attachments[0].Host = "elsewhere"
		w, err := d.manager().Which.Find(context.Background(), vol)
		must(t, err)
		if w.Agree || w.Authoritative != nil || !strings.Contains(w.Explanation, "is on host elsewhere") {
			t.Errorf("agree %v, authoritative %v (%s), want the host that can say", w.Agree, w.Authoritative, w.Explanation)
		}
	})
}

// which asks about the world's volume as in the registry.
func (d *daemon) which() api.Which {
	d.t.Helper()
	w, err := d.manager().Which.Find(context.Background(), d.world.Registry.CurrentVolume())
	must(d.t, err)
	return w
}

// startOn simulates manual changes: virsh destroy, virsh define old.xml, virsh start.
func (d *daemon) startOn(chain ...hv.Image) {
	d.t.Helper()
	must(d.t, d.world.Destroy(testInstance))
	must(d.t, d.world.SetConfigChain(context.Background(), testInstance, "vda", chain))
	must(d.t, d.world.Start(testInstance))
}

// namesNothing checks that an answer names no chain as authoritative, and contains these words.
func namesNothing(t *testing.T, w api.Which, words ...string) {
	t.Helper()
	if w.Agree || w.Authoritative != nil {
		t.Errorf("agree %v, authoritative %v (%s), want neither", w.Agree, w.Authoritative, w.Explanation)
	}
	for _, word := range words {
		if !strings.Contains(w.Explanation, word) {
			t.Errorf("the explanation does not say %q: %s", word, w.Explanation)
		}
	}
}

// The guest writes to an image that lacks its writes since the move, and the volume's image lacks
// its present writes.
func TestWhichNamesNothingForAGuestOnTheReleasedSource(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.until(d.migrate(), api.MigrationCompleted)
		d.startOn(rawImage(srcPath))
		namesNothing(t, d.which(), srcPath, mig.Dst.Path, "recover.md")
		must(t, d.world.SetConfigChain(context.Background(), testInstance, "vda", []hv.Image{rawImage(mig.Dst.Path)}))
		namesNothing(t, d.which(), srcPath, mig.Dst.Path)
	})
}

func TestWhichNamesNothingForAGuestThatLeftTheOverlayOfItsMigration(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.begin(toNewPool)
		if w := d.which(); !w.Agree || w.Authoritative[0].Path != overlayOf(mig) {
			t.Fatalf("before: agree %v on %v", w.Agree, w.Authoritative)
		}
		d.startOn(rawImage(srcPath))
		namesNothing(t, d.which(), srcPath, overlayOf(mig), "(A source that was written)")
	})
}

func TestWhichSaysThatAGuestHasNoDefinitionAnyMore(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		must(t, d.world.Undefine(testInstance))
		if w := d.which(); w.Agree || len(w.Authoritative) != 1 || w.Authoritative[0].Path != srcPath || !strings.Contains(w.Explanation, "has no definition any more") || !strings.Contains(w.Explanation, "`virsh define ./") {
			t.Errorf("agree %v, authoritative %v (%s), want what it runs on", w.Agree, w.Authoritative, w.Explanation)
		}
	})
}

// The registry was stopped before this host learnt the place of the volume since its last move.
func TestWhichDoesNotCallAMoveFinishedThatHasOnlyBegun(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.begin(toNewPool)
		vol := d.world.Registry.CurrentVolume()
		vol.Location.Path = "/old/earlier.raw"
		w, err := d.manager().Which.Find(context.Background(), vol)
		must(t, err)
		if w.Agree || strings.Contains(w.Explanation, "finished") || !strings.Contains(w.Explanation, "has begun at "+srcPath) {
			t.Errorf("agree %v: %s", w.Agree, w.Explanation)
		}
	})
}

// Another program's snapshot is over the volume: that chain has all writes.
func TestWhichNamesTheChainOfASnapshotOverTheVolume(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.SnapshotByUser(t)
		if w := d.which(); w.Agree || len(w.Authoritative) != 2 || w.Authoritative[1].Path != srcPath {
			t.Errorf("agree %v, authoritative %v (%s), want the snapshot over the volume", w.Agree, w.Authoritative, w.Explanation)
		}
	})
}

func TestWhichSaysWhereAGuestWouldStartTheNextTime(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.until(d.migrate(), api.MigrationCompleted)
		must(t, d.world.SetConfigChain(context.Background(), testInstance, "vda", []hv.Image{rawImage(srcPath)}))
		w := d.which()
		if w.Agree || len(w.Authoritative) != 1 || w.Authoritative[0].Path != mig.Dst.Path || !strings.Contains(w.Explanation, "definition names "+srcPath) {
			t.Errorf("agree %v, authoritative %v (%s)", w.Agree, w.Authoritative, w.Explanation)
		}
	})
}

func TestWhichNamesNothingForAGuestThatRunsWithoutItsDisk(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		must(t, d.world.DetachDisk(context.Background(), testInstance, hv.Live, "vda"))
		namesNothing(t, d.which(), "runs without disk vda")
	})
}

// Another host has moved the volume on, and back to its place.
func TestWhichKnowsThatAnotherHostHasMovedTheVolumeBack(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.until(d.migrate(), api.MigrationCompleted)
		d.startOn(rawImage(srcPath))
		vol := d.world.Registry.CurrentVolume()
		vol.Location.Path = srcPath
		vol.Generation++
		w, err := d.manager().Which.Find(context.Background(), vol)
		must(t, err)
		if !w.Agree || len(w.Authoritative) != 1 || w.Authoritative[0].Path != srcPath {
			t.Errorf("agree %v, authoritative %v (%s), want the volume where the registry has it", w.Agree, w.Authoritative, w.Explanation)
		}
	})
}

// libvirtd died as QEMU switched the guest to the overlay, and shows the disk on src.
func TestWhichNamesNothingWhereTheKernelSeesAnotherChain(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.DieInside(testInstance, "Snapshot", 1, func() { awayFor(d, time.Second) })
		d.untilItStands(d.migrate())
		namesNothing(t, d.which())
	})
}

// The second of two guests that share a volume was put back on the old image.
func TestWhichLooksAtEveryGuestThatSharesTheVolume(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		mig := d.until(d.migrate(), api.MigrationCompleted)
		which := func() api.Which {
			t.Helper()
			vol := d.world.Registry.CurrentVolume()
			other := vol.Attachments[0]
			other.ID, other.InstanceID, other.InstanceName = "second", testSrcAtt, "other" // as DefineOn defines it
			vol.Attachments = append(slices.Clone(vol.Attachments), other)
			w, err := d.manager().Which.Find(context.Background(), vol)
			must(t, err)
			return w
		}
		d.world.DefineOn(t, mig.Dst.Path)
		if w := which(); !w.Agree {
			t.Errorf("both on the volume: %s", w.Explanation)
		}
		must(t, d.world.Undefine(testSrcAtt))
		d.world.DefineOn(t, srcPath)
		namesNothing(t, which(), "instance other is stopped")
		must(t, d.world.Start(testSrcAtt))
		namesNothing(t, which(), "instance other runs on "+srcPath, mig.Dst.Path)
	})
}
