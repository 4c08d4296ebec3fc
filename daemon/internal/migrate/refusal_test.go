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
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

func TestRefusalsNameTheirReasonAndChangeNothing(t *testing.T) {
	disk := func(f func(*hv.Disk)) func(*testing.T, *migratetest.World) {
		return func(t *testing.T, w *migratetest.World) {
			w.Redefine(t, func(d *hv.Domain) { f(&d.Config[0]) })
		}
	}
	limited := func(dir string, can image.Needs) func(*testing.T, *migratetest.World) {
		return func(_ *testing.T, w *migratetest.World) { w.Images.Limits = map[string]image.Needs{dir: can} }
	}
	for _, c := range []struct {
		name   string
		target api.MigrationTarget
		world  func(*testing.T, *migratetest.World)
		code   api.Code
		says   string
	}{
		{"no target", api.MigrationTarget{}, nil, api.CodeInvalidArgument, "exactly one"},
		{"two targets", api.MigrationTarget{ToPool: "new", ToPath: "/new/x"}, nil, api.CodeInvalidArgument, "exactly one"},
		{"unknown format", api.MigrationTarget{ToPool: "new", ToFormat: "vmdk"}, nil, api.CodeInvalidArgument, "vmdk"},
		{"unknown verify", api.MigrationTarget{ToPool: "new", CopyOptions: api.CopyOptions{Verify: "some"}}, nil, api.CodeInvalidArgument, "some"},
		{"unknown method", api.MigrationTarget{ToPool: "new", Method: "magic"}, nil, api.CodeInvalidArgument, "magic"},
		{"method of the registry", api.MigrationTarget{ToPool: "new", Method: api.MethodLive}, nil, api.CodeInvalidArgument, "say it of the volume"},
		{"negative bandwidth", api.MigrationTarget{ToPool: "new", CopyOptions: api.CopyOptions{BandwidthBytesPerSecond: -1}}, nil, api.CodeInvalidArgument, "-1"},
		{"delete without verification", api.MigrationTarget{ToPool: "new", CopyOptions: api.CopyOptions{Verify: move.VerifyNone}, DeleteSource: true}, nil, api.CodeInvalidArgument, "verify full"},
		{"unknown pool", api.MigrationTarget{ToPool: "old"}, nil, api.CodeNotFound, "old"},
		{"relative path", api.MigrationTarget{ToPath: "new/x"}, nil, api.CodeInvalidArgument, "absolute"},
		{"path with a control character", api.MigrationTarget{ToPath: "/new/x\n"}, nil, api.CodeInvalidArgument, "characters"},
		{"path with dots", api.MigrationTarget{ToPath: "/new/../etc/x"}, nil, api.CodeInvalidArgument, "/etc/x"},
		{"path of the system", api.MigrationTarget{ToPath: "/etc/x.raw"}, nil, api.CodePermissionDenied, "/etc"},
		{"its own path", api.MigrationTarget{ToPath: srcPath}, nil, api.CodeSameLocation, srcPath},
		{"a pool that QEMU does not get to", toNewPool, func(_ *testing.T, w *migratetest.World) { w.Images.Closed = "/new" }, api.CodePermissionDenied, "chmod o+x /new"},
		{"a path that QEMU does not get to", api.MigrationTarget{ToPath: "/var/x.raw"}, func(_ *testing.T, w *migratetest.World) { w.Images.Closed = "/var" }, api.CodePermissionDenied, "chmod o+x /var"},
		{"a pool that the sandbox of the unit does not name", toNewPool, func(_ *testing.T, w *migratetest.World) { w.Images.ReadOnly = "/new" }, api.CodePermissionDenied, "ReadWritePaths=/new"},
		{"a source to which a cancel could not write", toNewPool, func(_ *testing.T, w *migratetest.World) { w.Images.ReadOnly = filepath.Dir(srcPath) }, api.CodePermissionDenied, "ReadWritePaths="},
		{"a pool that is full, though libvirt's last look says otherwise", toNewPool, func(_ *testing.T, w *migratetest.World) { w.Images.Free.Store(1) }, api.CodeNoSpace, "/new has 1B free"},
		{"overlays that QEMU does not get to", toNewPool, func(_ *testing.T, w *migratetest.World) { w.Images.Closed = "/overlays" }, api.CodePermissionDenied, "chmod o+x /overlays"},
		{"a path on a filesystem without hard links", api.MigrationTarget{ToPath: "/var/x.raw"}, limited("/var", image.Needs{FileBytes: 1 << 40, Direct: true, Kept: true}), api.CodeInvalidArgument, "the filesystem of /var (exfat) has no hard links"},
		{"a pool on a filesystem of small files", toNewPool, limited("/new", image.Needs{FileBytes: testSize - 1, Direct: true}), api.CodeInvalidArgument, "the filesystem of /new (exfat) holds no such file"},
		{"a pool in which no disk is opened past the page cache", toNewPool, func(t *testing.T, w *migratetest.World) {
			disk(func(d *hv.Disk) { d.Cache = "none" })(t, w)
			limited("/new", image.Needs{FileBytes: 1 << 40})(t, w)
		}, api.CodeInvalidArgument, "is not used past the page cache"},
		{"overlays on a filesystem without hard links", toNewPool, limited("/overlays", image.Needs{FileBytes: 1 << 40, Direct: true, Kept: true}), api.CodeInvalidArgument, "the filesystem of /overlays (exfat) has no hard links"},
		{"overlays on a filesystem of files that are smaller than the volume", toNewPool, limited("/overlays", image.Needs{FileBytes: testSize, Named: true, Kept: true}), api.CodeInvalidArgument, "holds no such file"},
		{"overlays in memory", toNewPool, limited("/overlays", image.Needs{FileBytes: 1 << 40, Named: true}), api.CodeInvalidArgument, "is in memory"},
		{"a pool in memory", api.MigrationTarget{ToPool: "ram"}, func(_ *testing.T, w *migratetest.World) {
			w.AddPool(hv.PoolInfo{Name: "ram", Type: "dir", Path: "/dev/shm", Active: true, FreeBytes: 1 << 40})
		}, api.CodeInvalidArgument, "pool ram is in memory (tmpfs at /dev/shm)"},
		{"snapshots", toNewPool, func(t *testing.T, w *migratetest.World) {
			w.Redefine(t, func(d *hv.Domain) { d.Snapshots = 1 })
		}, api.CodeUnsupportedDisk, "virsh snapshot-delete web NAME"},
		{"checkpoints", toNewPool, func(t *testing.T, w *migratetest.World) {
			w.Redefine(t, func(d *hv.Domain) { d.Checkpoints = 1 })
		}, api.CodeUnsupportedDisk, "`virsh checkpoint-delete web NAME` deletes one (if its bitmap is gone, that fails: add --metadata)"},
		{"a CD-ROM", toNewPool, disk(func(d *hv.Disk) { d.Device = "cdrom" }), api.CodeUnsupportedDisk, "cdrom"},
		{"a LUN", toNewPool, disk(func(d *hv.Disk) { d.Device = "lun" }), api.CodeUnsupportedDisk, "lun"},
		{"LUKS", toNewPool, disk(func(d *hv.Disk) { d.Encrypted = true }), api.CodeUnsupportedDisk, "encrypted"},
		{"a transient disk", toNewPool, disk(func(d *hv.Disk) { d.Transient = true }), api.CodeUnsupportedDisk, "transient"},
		{"a slice", toNewPool, disk(func(d *hv.Disk) { d.Slices = true }), api.CodeUnsupportedDisk, "slice"},
		{"reservations", toNewPool, disk(func(d *hv.Disk) { d.Uncarried = "<reservations> in its <source>" }), api.CodeUnsupportedDisk, "has <reservations>"},
		{"a metadata cache", toNewPool, disk(func(d *hv.Disk) { d.ImageSetting = "<metadata_cache>" }), api.CodeUnsupportedDisk, "has <metadata_cache>"},
		{"a startup policy, to an export", api.MigrationTarget{ToPath: migratetest.OtherExport.Path}, disk(func(d *hv.Disk) { d.StartupPolicy = "optional" }), api.CodeUnsupportedDisk, "startupPolicy='optional'"},
		{"a startup policy, to an RBD image", api.MigrationTarget{ToPath: migratetest.RBD.Path}, disk(func(d *hv.Disk) { d.StartupPolicy = "mandatory" }), api.CodeUnsupportedDisk, "take it out of the definition first"},
		{"discard_no_unref, to raw", toNewPool, disk(func(d *hv.Disk) { d.DiscardNoUnref = true }), api.CodeUnsupportedDisk, "has discard_no_unref='on', which libvirt allows for qcow2 images only"},
		{"a shareable disk, to qcow2", api.MigrationTarget{ToPool: "new", ToFormat: api.FormatQcow2}, disk(func(d *hv.Disk) { d.Shareable = true }), api.CodeUnsupportedDisk, "say --to-format raw"},
		{"a running disk with copy_on_read", toNewPool, func(t *testing.T, w *migratetest.World) {
			disk(func(d *hv.Disk) { d.CopyOnRead, d.ReadOnly = true, true })(t, w)
			must(t, w.Start(testInstance))
		}, api.CodeUnsupportedDisk, "stop the instance and run this again"},
		{"an external copy of a running read-only disk", api.MigrationTarget{ToPool: "new", ExternalCopy: true}, func(t *testing.T, w *migratetest.World) {
			disk(func(d *hv.Disk) { d.ReadOnly = true })(t, w)
			must(t, w.Start(testInstance))
		}, api.CodeUnsupportedDisk, "stop the instance and run this again"},
		{"a running disk under a lock manager with which it cannot be switched", toNewPool, func(t *testing.T, w *migratetest.World) {
			w.UseLockManager("libvirt locks images with sanlock")
			must(t, w.Start(testInstance))
		}, api.CodeUnsupportedDisk, "sanlock; stop the instance and call again"},
		{"a backup of the disk", toNewPool, func(t *testing.T, w *migratetest.World) {
			must(t, w.Start(testInstance))
			must(t, w.BeginBackup(testInstance, "vda"))
		}, api.CodeInstanceBusy, "end it: `virsh domjobabort web`"},
		{"a guest that is asleep", toNewPool, func(t *testing.T, w *migratetest.World) {
			must(t, w.Start(testInstance))
			must(t, w.StandStill(testInstance, hv.PauseAsleep))
		}, api.CodeStateForbidden, "asleep (S3); `virsh dompmwakeup web` wakes it"},
		{"a managed save image", toNewPool, func(t *testing.T, w *migratetest.World) {
			must(t, w.Start(testInstance))
			must(t, w.Save(testInstance))
		}, api.CodeStateForbidden, "managedsave-remove"},
		{"two attachments", toNewPool, func(_ *testing.T, w *migratetest.World) {
			v := &w.Registry.Vol
			v.Attachments = append(v.Attachments, v.Attachments[0])
		}, api.CodeMultiattached, "cannot migrate volume vol: it has 2 attachments; detach all but one, or move it with --live-shared, while its guests write, or with --pause-all,"},
		{"another host's volume", toNewPool, func(_ *testing.T, w *migratetest.World) {
			w.Registry.Vol.Attachments[0].Host = "elsewhere"
		}, api.CodeNotYourHost, "elsewhere"},
		{"an instance that no host has, whose domain is here all the same", toNewPool, func(_ *testing.T, w *migratetest.World) {
			w.InOldPool()
			w.Registry.Vol.Attachments[0].Host = ""
		}, api.CodeVolumeInUse, "by the registry no host has it at an instance, but /old/vol.raw is disk vda of instance web"},
		{"two instances, of which a host has one", toNewPool, func(t *testing.T, w *migratetest.World) {
			must(t, w.Undefine(testInstance))
			v := &w.Registry.Vol
			v.Attachments = append(v.Attachments, v.Attachments[0])
			v.Attachments[0].Host = ""
		}, api.CodeMultiattached, "it has 2 attachments"},
		{"a volume being deleted", toNewPool, func(_ *testing.T, w *migratetest.World) {
			w.Registry.Vol.Status = api.VolumeDeleting
		}, api.CodeVolumeNotAvailable, "deleting"},
		{"a source that was made smaller", toNewPool, func(_ *testing.T, w *migratetest.World) {
			w.Registry.Vol.Location.SizeBytes += 512
		}, api.CodeSizeMismatch, "made smaller"},
		{"a disk changed behind our back", toNewPool, func(t *testing.T, w *migratetest.World) {
			must(t, w.CreateImage("/old/other.raw", hvtest.Raw, testSize))
			must(t, w.SetConfigChain(context.Background(), testInstance, "vda",
				[]hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: "/old/other.raw"}}))
		}, api.CodeChainChanged, "which"},
		{"an unattached volume in another host's pool", toNewPool, func(t *testing.T, w *migratetest.World) {
			must(t, w.Undefine(testInstance))
			w.AddPool(hv.PoolInfo{Name: "old", Type: "dir", Path: "/old", Active: true})
			w.Elsewhere("old")
		}, api.CodeNotYourHost, "elsewhere"},
		{"an unattached volume in a pool that only another host has", toNewPool, func(_ *testing.T, w *migratetest.World) {
			w.Elsewhere("theirs")
		}, api.CodeNotYourHost, "elsewhere"},
		{"an unattached volume at a path of another host", toNewPool, func(_ *testing.T, w *migratetest.World) {
			w.Elsewhere("")
		}, api.CodeNotYourHost, "elsewhere"},
		{"an unattached volume that another host has at a path of its own", toNewPool, func(t *testing.T, w *migratetest.World) {
			w.AddPool(hv.PoolInfo{Name: "nfs", Type: "netfs", Path: "/nfs", Active: true})
			must(t, w.CreateImage("/nfs/vol.raw", hvtest.Raw, testSize))
			w.Elsewhere("nfs")
		}, api.CodeConflict, "pool nfs has vol.raw at /nfs/vol.raw"},
		{"an instance that was forgotten", toNewPool, func(_ *testing.T, w *migratetest.World) {
			w.Unattached()
		}, api.CodeVolumeInUse, "is disk vda of instance web"},
		{"a device that is not there", api.MigrationTarget{ToPath: "/dev/no-such-device"}, nil, api.CodeInvalidArgument, "no device"},
		{"a source to which another host's QEMU writes", toNewPool, func(_ *testing.T, w *migratetest.World) {
			w.Images.Locked = map[string]image.Locks{srcPath: {Open: true, Writes: true}}
		}, api.CodeVolumeInUse, "a QEMU of this host or of another has /old/vol.raw open for writing"},
		{"an unattached source to which another host's QEMU writes", toNewPool, func(t *testing.T, w *migratetest.World) {
			must(t, w.Undefine(testInstance))
			w.Unattached()
			w.Images.Locked = map[string]image.Locks{srcPath: {Open: true, Writes: true}}
		}, api.CodeVolumeInUse, "a QEMU of this host or of another has /old/vol.raw open for writing"},
		{"libvirt away", toNewPool, func(_ *testing.T, w *migratetest.World) { w.Disconnect() }, api.CodeHypervisorUnavailable, "nothing was changed"},
		{"registry away", toNewPool, func(_ *testing.T, w *migratetest.World) { w.Registry.SetDown(true) }, api.CodeRegistryUnavailable, "nothing was changed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
				if c.world != nil {
					c.world(t, d.world)
				}
				_, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: c.target, Composite: true})
				if api.CodeOf(err) != c.code {
					t.Fatalf("got %v (%s), want %s", err, api.CodeOf(err), c.code)
				}
				if !strings.Contains(err.Error(), c.says) {
					t.Errorf("the message %q does not say %q", err, c.says)
				}
				if _, planned := d.manager().Plan(context.Background(), testVolume, c.target); planned == nil || planned.Error() != err.Error() {
					t.Errorf("the plan of the move says %v, the move %v", planned, err)
				}
				if list, err := d.manager().List(context.Background(), true); err != nil || len(list) != 0 {
					t.Errorf("a refused start left migrations %v (%v)", list, err)
				}
				for _, path := range []string{dstPath, overlayPath} {
					if d.world.Exists(path) {
						t.Errorf("a refused start left %s", path)
					}
				}
			})
		})
	}
}

// A running guest locks its disk, and a reader elsewhere does not prevent a move.
func TestLocksThatHarmNothingDoNotKeepAVolumeFromBeingMoved(t *testing.T) {
	for state, locks := range map[hv.State]image.Locks{hv.StateRunning: {Open: true, Writes: true}, hv.StateStopped: {Open: true}} {
		inBubble(t, state, func(_ *testing.T, d *daemon) {
			d.world.Images.Locked = map[string]image.Locks{srcPath: locks}
			d.moved(d.until(d.migrate(), api.MigrationCompleted))
		})
	}
}

// libvirt shows the path of src, and its guest's process has another image open: another device has
// that name now.
func TestASourceThatItsGuestDoesNotHaveOpenIsNotMoved(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		must(t, d.world.GoStale(testInstance))
		detach(hv.Live)(t, d)
		_, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: toNewPool})
		if api.CodeOf(err) != api.CodeChainChanged || !strings.Contains(err.Error(), "does not have open") {
			t.Errorf("got %v, want chain_changed", err)
		}
		if list, err := d.manager().List(context.Background(), true); err != nil || len(list) != 0 {
			t.Errorf("a refused start left migrations %v (%v)", list, err)
		}
	})
}

func TestADestinationOfAnotherSizeIsRefusedToTheByte(t *testing.T) {
	for name, c := range map[string]struct {
		size   int64
		format api.Format
		says   string
	}{
		"smaller": {testSize - 512, api.FormatRaw, "512 bytes smaller"},
		"larger":  {testSize + 512, api.FormatQcow2, "512 bytes larger"},
		"larger, and of a size that QEMU does not write to": {testSize + 512, api.FormatRaw, "no multiple of 4096"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				path := t.TempDir() + "/dst.raw"
				must(t, d.world.CreateImage(path, string(c.format), c.size))
				_, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: api.MigrationTarget{ToPath: path, ToFormat: c.format}})
				if api.CodeOf(err) != api.CodeSizeMismatch || !strings.Contains(err.Error(), c.says) {
					t.Errorf("got %v, want size_mismatch: %s", err, c.says)
				}
			})
		})
	}
}

func TestAStoppedInstanceWithAShareableDiskIsMovedAndKeptStopped(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		d.world.Redefine(t, func(dom *hv.Domain) { dom.Config[0].Shareable = true })
		mig := d.begin(toNewPool)
		if mig.Method != move.MethodOffline {
			t.Errorf("the method is %s, want %s", mig.Method, move.MethodOffline)
		}
		if err := d.world.Start(testInstance); err == nil {
			t.Error("the instance started while its volume was being moved")
		}
		_, _, err := d.manager().Copy(context.Background(), d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCopied)
		d.completes(mig)
		d.moved(d.until(mig.ID, api.MigrationCompleted))
		must(t, d.world.Start(testInstance))
	})
}

func TestAnUnattachedVolumeIsMovedByAnyHostThatHasItsSharedPool(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		must(t, d.world.Undefine(testInstance))
		d.world.AddPool(hv.PoolInfo{Name: "old", Type: "netfs", Path: "/old", Active: true})
		d.world.Elsewhere("old")
		d.until(d.migrate(), api.MigrationCompleted)
	})
}

// A detach of the disk is under way at the request for the start, and its guest does not release
// the disk.
func TestAVolumeIsRefusedIfItsGuestMayLetGoOfItWhenItIsTheStartsTurn(t *testing.T) {
	for _, target := range []api.MigrationTarget{toNewPool, mirrorToNewPool} {
		inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
			looks := 0
			d.world.MayMove = func() error {
				if looks++; looks == 1 {
					return nil // the detach is given up while the start waits
				}
				return api.Errorf(api.CodeInstanceBusy, "it may let go of it at any time")
			}
			_, err := d.manager().Start(context.Background(), StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: target, Composite: true})
			if api.CodeOf(err) != api.CodeInstanceBusy {
				t.Errorf("got %v, want instance_busy", err)
			}
			if calls := d.changes(0); len(calls) > 0 {
				t.Errorf("a refused start made the calls %v", calls)
			}
			d.stayed()
			d.world.MayMove = nil // it was restarted
			d.moved(d.until(d.migrateTo(target), api.MigrationCompleted))
		})
	}
}

// libvirt shows a failed job as another kind of job, until it is gone.
func TestAJobThatFailsIsNotTakenForSomebodyElses(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.mirroring(mirrorToNewPool)
		d.world.Mu.Lock()
		d.world.Seen = func(dom *hv.Domain) {
			dom.LiveDisk("vda").Mirror.Job = hv.JobOther
			must(t, d.world.BreakJob(testInstance, "vda"))
		}
		d.world.Mu.Unlock()
		mig = d.until(mig.ID, api.MigrationCancelled)
		if mig.Error == nil || !strings.Contains(mig.Error.Message, "QEMU ended the copy") {
			t.Errorf("the migration says %v", mig.Error)
		}
		d.gone(mig)
	})
}
