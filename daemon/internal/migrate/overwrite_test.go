// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// somebodysFile makes a file of the volume's size with data that Volferry does not know.
func (d *daemon) somebodysFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "somebodys.raw")
	must(t, d.world.CreateImage(path, hvtest.Raw, testSize))
	must(t, d.world.WriteBlock(path, testBlocks-1, 4711))
	return path
}

func TestAFileWithDataThatIsNobodysIsOverwrittenOnlyIfThatIsAskedFor(t *testing.T) {
	forAllStates(t, func(t *testing.T, d *daemon) {
		ctx := context.Background()
		path := d.somebodysFile(t)
		target := api.MigrationTarget{ToPath: path}
		refused := func(what string, err error) {
			t.Helper()
			if api.CodeOf(err) != api.CodeDstInUse || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "--yes") || api.AsError(err).Details[api.DetailOverwrites] != path {
				t.Errorf("%s: %v, want dst_in_use with --yes", what, err)
			}
		}
		_, err := d.manager().Plan(ctx, testVolume, target)
		refused("a plan", err)
		_, err = d.manager().Start(ctx, StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: target, Composite: true})
		refused("a move", err)
		_, err = d.manager().Start(ctx, StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: target})
		refused("a start", err)
		if content, err := d.world.ReadImage(path); err != nil || content[testBlocks-1] != 4711 {
			t.Errorf("the file was touched: %v", err)
		}
		d.stayed()
		target.Overwrite = true
		d.moved(d.until(d.migrateTo(target), api.MigrationCompleted))
	})
}

func TestAFileThatAnotherHostHasOpenIsNotOverwritten(t *testing.T) {
	forAllStates(t, func(t *testing.T, d *daemon) {
		path := d.somebodysFile(t)
		d.world.Images.Locked = map[string]image.Locks{path: {Open: true}}
		target := api.MigrationTarget{ToPath: path, Overwrite: true}
		_, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: target, Composite: true})
		if api.CodeOf(err) != api.CodeDstInUse || !strings.Contains(err.Error(), "a QEMU of this host or of another has "+path+" open") {
			t.Errorf("got %v, want dst_in_use by QEMU's locks", err)
		}
		d.stayed()
	})
}

// An operator prepares files for volumes, or repeats a move that was taken back.
func TestAFileThatHasNothingToLoseIsOverwrittenUnasked(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, d *daemon) string{
		"an empty one": func(t *testing.T, d *daemon) string {
			path := filepath.Join(t.TempDir(), "dst.raw")
			must(t, d.world.CreateImage(path, hvtest.Raw, testSize))
			return path
		},
		"a part of a copy that was cancelled": func(t *testing.T, d *daemon) string {
			path := d.somebodysFile(t)
			d.copyAndCancel(d.begin(api.MigrationTarget{ToPath: path, Overwrite: true}).ID)
			return path
		},
		"what the volume has left": func(t *testing.T, d *daemon) string {
			path, _ := d.leaveFile(t)
			return path
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				d.moved(d.until(d.migrateTo(api.MigrationTarget{ToPath: prepare(t, d)}), api.MigrationCompleted))
			})
		})
	}
}

// Its identity does not cover its content.
func TestAFileThatWasWrittenSinceACancelledMoveIsOverwrittenOnlyIfThatIsAskedFor(t *testing.T) {
	for name, writes := range map[string]func(t *testing.T, d *daemon, path string){
		"by a person": func(t *testing.T, d *daemon, path string) {
			for b := range int64(testBlocks) { // cp another.img somebodys.raw
				must(t, d.world.WriteBlock(path, b, 4711))
			}
		},
		"by its guest": func(t *testing.T, d *daemon, path string) { d.ranOn(t, rawImage(path)) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				path := d.somebodysFile(t)
				d.copyAndCancel(d.begin(api.MigrationTarget{ToPath: path, Overwrite: true}).ID)
				writes(t, d, path)
				for _, again := range []string{"at once", "after a restart"} {
					_, err := d.manager().Plan(context.Background(), testVolume, api.MigrationTarget{ToPath: path})
					if api.CodeOf(err) != api.CodeDstInUse || !strings.Contains(err.Error(), "--yes") {
						t.Errorf("%s: %v, want dst_in_use with --yes", again, err)
					}
					d.Restart()
				}
				d.moved(d.until(d.migrateTo(api.MigrationTarget{ToPath: path, Overwrite: true}), api.MigrationCompleted))
			})
		})
	}
}

// The tool that copies, and its target, are the operator's.
func TestWhoCopiesOutsideOverwritesUnasked(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.begin(api.MigrationTarget{ToPath: d.somebodysFile(t), ExternalCopy: true})
	})
}

// An image that a volume has left is its way back, if the move was a mistake.
func TestWhatAnotherVolumeHasLeftIsOverwrittenOnlyIfThatIsAskedFor(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		path, id := d.leaveFile(t)
		dst := api.Location{Path: path, Format: api.FormatRaw, SizeBytes: testSize}
		info, err := d.world.Images.Inspect(context.Background(), dst)
		must(t, err)
		for _, info.Block = range []bool{false, true} {
			for volume, refused := range map[string]bool{testVolume: false, "another": true} {
				err := d.manager().Released.CheckNothingLost(context.Background(), &move.Spec{VolumeID: volume, Dst: dst}, api.MigrationTarget{}, info)
				if (api.CodeOf(err) == api.CodeDstInUse) != refused {
					t.Errorf("for volume %s, a device %t: %v", volume, info.Block, err)
				}
				if refused && (!strings.Contains(err.Error(), id) || !strings.Contains(err.Error(), "--yes")) {
					t.Errorf("%v: want the migration, and --yes", err)
				}
			}
		}
	})
}

// A named device was made for the volume, whatever it has.
func TestADeviceThatNoVolumeHasLeftIsOverwrittenUnasked(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		dst := api.Location{Path: d.somebodysFile(t), Format: api.FormatRaw, SizeBytes: testSize}
		info, err := d.world.Images.Inspect(context.Background(), dst)
		must(t, err)
		info.Block = true
		must(t, d.manager().Released.CheckNothingLost(context.Background(), &move.Spec{VolumeID: testVolume, Dst: dst}, api.MigrationTarget{}, info))
	})
}
