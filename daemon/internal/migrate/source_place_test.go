// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/internal/api"
)

// hostFile is a file of the host in a place where volumes may not be.
const hostFile = "/etc/hostname"

// This holds also if the registry has the volume as this host's: another host, which was forgotten
// since, may have registered it.
func TestAVolumeThatNoGuestHasMovesOnlyFromWhereAVolumeMayBe(t *testing.T) {
	for what, c := range map[string]struct {
		pool, name, path string
		want             api.Code
	}{
		"in its pool":                      {"old", "vol.raw", srcPath, ""},
		"in no pool":                       {"", "", hostFile, api.CodePermissionDenied},
		"at another path than in its pool": {"old", "vol.raw", hostFile, api.CodeConflict},
		"not in its pool":                  {"old", "hostname", hostFile, api.CodeNotFound},
		"in a pool that is not here":       {"none", "hostname", hostFile, api.CodeNotFound},
	} {
		for _, host := range []string{testHost, ""} {
			for _, shelved := range []bool{false, true} {
				inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
					d.shelve(1)
					r := d.world.Registry
					must(t, d.world.CreateImage(hostFile, hvtest.Raw, testSize))
					r.Lock()
					r.Vol.Host = host
					r.Vol.Location.Pool, r.Vol.Location.Name, r.Vol.Location.Path = c.pool, c.name, c.path
					r.Vol.Attachments[0].Location = r.Vol.Location
					if !shelved {
						r.Vol.Attachments, r.Vol.Status = nil, api.VolumeAvailable
					}
					r.Unlock()
					target := toNewPool
					target.DeleteSource = true
					_, err := d.manager().Start(t.Context(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: target, Composite: true})
					there := c.want == "" || d.world.Exists(c.path) // a move that is not refused may have deleted it
					if api.CodeOf(err) != c.want || !there {
						t.Errorf("%s, host %q, shelved %t: %v, want code %q; the file is there: %t", what, host, shelved, err, c.want, there)
					}
				})
			}
		}
	}
}

// Another host may have written its header.
func TestACloneOverTheImageOfAnotherVolumeIsNotMoved(t *testing.T) {
	inBubbleOn(t, migratetest.CloneWorld, hv.StateStopped, func(t *testing.T, d *daemon) {
		if _, err := d.manager().Plan(t.Context(), testVolume, toNewPool); err != nil {
			t.Fatal(err)
		}
		d.world.Registry.Others = []api.Volume{migratetest.VolumeAt(migratetest.BasePath)}
		_, err := d.manager().Plan(t.Context(), testVolume, toNewPool)
		if api.CodeOf(err) != api.CodeVolumeInUse || !strings.Contains(err.Error(), "its base image "+migratetest.BasePath+" is volume free already") {
			t.Errorf("%v, want volume_in_use", err)
		}
	})
}

// Outside pools and allowed paths src must be an image of an instance of the volume, and dst is
// refused.
func TestALedMoveTakesNoImageThatOnlyAnotherGuestHas(t *testing.T) {
	const theirs = "/theirs/db.raw"
	liveDaemon(t, func(t *testing.T, d *daemon) {
		must(t, d.world.CreateImage(theirs, hvtest.Raw, testSize))
		must(t, d.world.Define(hv.Domain{ID: uuid.NewString(), Name: "db", Config: []hv.Disk{{
			Target: "vda", Bus: "virtio", Device: "disk", Terminated: true, Chain: []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: theirs}},
		}}}))
		good := liveVolume()
		if err := d.manager().Parts.Live(t.Context(), "M.good", api.LiveTrack{LiveVolume: good, Generation: 1}); err != nil {
			t.Fatal(err)
		}
		at := func(l api.Location, path string) api.Location {
			l.Pool, l.Name, l.Path = "", filepath.Base(path), path
			return l
		}
		for what, v := range map[string]api.LiveVolume{
			"src": {Src: at(good.Src, theirs), Dst: good.Dst}, "dst": {Src: good.Src, Dst: at(good.Dst, theirs)}, "dst at src": {Src: good.Src, Dst: at(good.Dst, srcPath)},
		} {
			in := good
			in.Src, in.Dst = v.Src, v.Dst
			refused := d.manager().Parts.Live(t.Context(), "M."+what, api.LiveRound{LiveVolume: in, Generation: 1, Round: 1})
			if api.CodeOf(refused) != api.CodeInvalidArgument || !strings.Contains(refused.Error(), "in a directory that does not exist") {
				t.Errorf("%s is the image of another guest: %v", what, refused)
			}
		}
		in := copySaved()
		in.Src = at(in.Src, theirs)
		if _, err := d.manager().Parts.CheckCopySaved(t.Context(), in); !strings.Contains(err.Error(), "in a directory that does not exist") {
			t.Errorf("a copy with all guests paused: %v", err)
		}
		in.MigrationID = testMigration
		v := good
		v.Src = at(good.Src, theirs)
		if err := d.manager().Preflight.CheckLive(t.Context(), api.LiveCheck{LiveVolume: v}); !strings.Contains(err.Error(), "in a directory that does not exist") {
			t.Errorf("a check of a move while all guests write: %v", err)
		}
	})
}
