// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/instance/shelf"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

func TestWhatMayNotBeIsRefusedBeforeAnythingIsTouched(t *testing.T) {
	for name, c := range map[string]struct {
		state api.InstanceState
		what  string
		spoil func(t *testing.T, w *world)
		want  api.Code
		says  string
	}{
		"start of a running one": {api.InstanceRunning, "start", nil, api.CodeStateForbidden, "running already"},
		"start without root": {
			api.InstanceStopped, "start", func(_ *testing.T, w *world) { w.registry.loseRoot() },
			api.CodeRootVolumeMissing, "cannot start instance web without a root device volume",
		},
		"start of a shelved one":  {api.InstanceShelved, "start", nil, api.CodeStateForbidden, "unshelve"},
		"start of one on no host": {api.InstanceShelvedOffloaded, "start", nil, api.CodeStateForbidden, "unshelve"},
		"start of a locked one": {
			api.InstanceStopped, "start", func(_ *testing.T, w *world) { w.registry.inst.Locked, w.registry.inst.LockReason = true, "audit" },
			api.CodeInstanceLocked, "audit",
		},
		"start of one whose root is gone by its guard": {
			api.InstanceStopped, "start", func(t *testing.T, w *world) { must(t, w.nodes[0].guards.Set(web, guard.OwnerRoot, "no root")) },
			api.CodeRootVolumeMissing, "without a root device volume",
		},
		"start under a guard of somebody else": {
			api.InstanceStopped, "start", func(t *testing.T, w *world) { must(t, w.nodes[0].guards.Set(web, "migration m", "it is being folded")) },
			api.CodeInstanceBusy, "it is being folded",
		},
		"start from a definition that misses an overlay": {
			api.InstanceStopped, "start", func(_ *testing.T, w *world) {
				w.nodes[0].mayStart = api.Errorf(api.CodeChainChanged, "its newest writes are in an overlay")
			},
			api.CodeChainChanged, "cannot start instance web: its newest writes are in an overlay",
		},
		"start from a definition that was put back after a move": {
			api.InstanceStopped, "start", func(t *testing.T, w *world) {
				must(t, w.nodes[0].Fake.SetConfigChain(t.Context(), web, "vda", []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: "/released.raw"}}))
			},
			api.CodeChainChanged, "its disk vda is at /released.raw, and volume",
		},
		"start on another device than its volume's": {
			api.InstanceStopped, "start", func(_ *testing.T, w *world) { w.registry.atts[1].Location.Identity = "naa.6001405aa" },
			api.CodeChainChanged, "is not what the volume there is on: that is naa.6001405aa",
		},
		"start on another RBD image than its volume's": {
			api.InstanceStopped, "start", func(t *testing.T, w *world) {
				const at = "rbd://6f2cbd1e-6c2f-4f0e-9a5b-0d6a0a6f4e11/rbd/web"
				must(t, w.nodes[0].CreateImage(at, hvtest.Raw, 16*hvtest.BlockSize))
				must(t, w.nodes[0].Fake.SetConfigChain(t.Context(), web, "vda", []hv.Image{{Type: hv.SourceNetwork, Format: hvtest.Raw, Path: at}}))
				for i := range w.registry.atts {
					if w.registry.atts[i].Device == "vda" {
						w.registry.atts[i].Location = api.Location{Path: at, Format: api.FormatRaw, SizeBytes: 16 * hvtest.BlockSize, Identity: "5e1a"}
					}
				}
			},
			api.CodeChainChanged, "rbd/web is not what the volume there is on: that is 5e1a",
		},
		"repair of a running one": {api.InstanceRunning, "repair", nil, api.CodeStateForbidden, "cannot repair instance web: it is running; shut it down first"},
		"repair of a shelved one": {api.InstanceShelved, "repair", nil, api.CodeStateForbidden, "its definition is at the registry"},
		"repair of a locked one": {
			api.InstanceStopped, "repair", func(_ *testing.T, w *world) { w.registry.inst.Locked, w.registry.inst.LockReason = true, "audit" },
			api.CodeInstanceLocked, "audit",
		},
		"repair of one whose migration has stopped in the middle": {
			api.InstanceStopped, "repair", func(_ *testing.T, w *world) {
				w.nodes[0].mayStart = api.Errorf(api.CodeChainChanged, "src was written since")
			},
			api.CodeChainChanged, "src was written since",
		},
		"repair of one of which the journal says another place": {
			api.InstanceStopped, "repair", func(t *testing.T, w *world) {
				must(t, w.nodes[0].Fake.SetConfigChain(t.Context(), web, "vda", []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: "/dst.raw"}}))
				w.nodes[0].unrecorded = api.Errorf(api.CodeChainChanged, "the journal has it at /dst.raw")
			},
			api.CodeChainChanged, "cannot repair instance web: the journal has it at /dst.raw",
		},
		"repair of one whose definition has lost a disk": {
			api.InstanceStopped, "repair", func(t *testing.T, w *world) {
				must(t, w.nodes[0].Fake.DetachDisk(t.Context(), web, hv.Config, "vdb"))
				w.registry.atts[1].VolumeName = "web-vdb"
			},
			api.CodeChainChanged, "`volferryctl volume detach web-vdb web`, then `volferryctl volume attach web-vdb web --device vdb`",
		},
		"repair of one whose definition has lost a disk that it may read": {
			api.InstanceStopped, "repair", func(t *testing.T, w *world) {
				must(t, w.nodes[0].Fake.DetachDisk(t.Context(), web, hv.Config, "vdb"))
				w.registry.atts[1].Mode = api.ModeRO
			},
			api.CodeChainChanged, "web --device vdb --mode ro`",
		},
		"repair of one whose definition has lost its root": {
			api.InstanceStopped, "repair", func(t *testing.T, w *world) {
				must(t, w.nodes[0].Fake.DetachDisk(t.Context(), web, hv.Config, "vda"))
				w.registry.atts[0].VolumeName = "web-vda"
			},
			api.CodeChainChanged, "`volferryctl volume attach web-vda web --root`",
		},
		"repair of one whose definition has a volume at another device": {
			api.InstanceStopped, "repair", func(t *testing.T, w *world) {
				f := w.nodes[0].Fake
				dom, err := f.Domain(t.Context(), web)
				must(t, err)
				image := dom.ConfigDisk("vdb").Chain[0]
				must(t, f.DetachDisk(t.Context(), web, hv.Config, "vdb"))
				must(t, f.AttachDisk(t.Context(), web, hv.Config, hv.DiskSpec{Target: "vdc", Bus: "virtio", Image: image}))
			},
			api.CodeChainChanged, "`virsh detach-disk --config web vdc`, then `volferryctl volume detach",
		},
		"repair of one whose definition has lost an encrypted disk": {
			api.InstanceStopped, "repair", func(t *testing.T, w *world) {
				must(t, w.nodes[0].Fake.DetachDisk(t.Context(), web, hv.Config, "vdb"))
				w.registry.atts[1].Location.LUKSSecret = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0bbb"
			},
			api.CodeChainChanged, "`virsh define FILE`",
		},
		"repair of one whose volume is not there": {
			api.InstanceStopped, "repair", func(t *testing.T, w *world) {
				must(t, w.nodes[0].Fake.SetConfigChain(t.Context(), web, "vda", []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: "/released.raw"}}))
				for _, a := range w.registry.atts {
					w.nodes[0].missing[a.Location.Path] = true
				}
			},
			api.CodeNotFound, "there is nothing at",
		},
		"reboot of one whose disks nobody can vouch for": {
			api.InstanceRunning, "reboot", func(_ *testing.T, w *world) {
				w.nodes[0].mayStart = api.Errorf(api.CodeChainChanged, "libvirt and the kernel disagree")
			},
			api.CodeChainChanged, "cannot reboot instance web",
		},
		"start on another host": {api.InstanceStopped, "start", func(_ *testing.T, w *world) { w.registry.place(w.nodes[1], api.InstanceStopped) }, api.CodeNotYourHost, "beta"},
		"stop of a stopped one that is locked": {
			api.InstanceStopped, "stop", func(_ *testing.T, w *world) { w.registry.inst.Locked = true },
			api.CodeInstanceLocked, "locked",
		},
		"shelve of a shelved one that is locked": {
			api.InstanceShelved, "keep", func(_ *testing.T, w *world) { w.registry.inst.Locked = true },
			api.CodeInstanceLocked, "locked",
		},
		"stop of a stopped one":    {api.InstanceStopped, "stop", nil, api.CodeStateForbidden, "it is stopped"},
		"stop of a paused one":     {api.InstancePaused, "stop", nil, api.CodeStateForbidden, "--force"},
		"reboot of a paused one":   {api.InstancePaused, "reboot", nil, api.CodeStateForbidden, "it is paused"},
		"pause of a stopped one":   {api.InstanceStopped, "pause", nil, api.CodeStateForbidden, "it is stopped"},
		"unpause of a running one": {api.InstanceRunning, "unpause", nil, api.CodeStateForbidden, "it is running"},
		"unpause in the switch of a migration": {
			api.InstancePaused, "unpause", func(_ *testing.T, w *world) { w.nodes[0].switching = true },
			api.CodeInstanceBusy, "migration",
		},
		"start of one that was moved to another host": {
			api.InstanceRunning, "start", func(t *testing.T, w *world) { must(t, w.nodes[0].MoveAway(web)) },
			api.CodeStateForbidden, "moved to another host",
		},
		"shelve of one that was moved to another host": {
			api.InstanceRunning, "shelve", func(t *testing.T, w *world) { must(t, w.nodes[0].MoveAway(web)) },
			api.CodeStateForbidden, "moved to another host",
		},
		"reboot of one that is asleep": {
			api.InstanceRunning, "reboot", func(t *testing.T, w *world) { must(t, w.nodes[0].StandStill(web, hv.PauseAsleep)) },
			api.CodeInstanceBusy, "is asleep (S3)",
		},
		"shelve of one that has crashed": {
			api.InstanceRunning, "shelve", func(t *testing.T, w *world) { must(t, w.nodes[0].StandStill(web, hv.PauseCrashed)) },
			api.CodeInstanceBusy, "has crashed and its process is kept",
		},
		"one that has no domain": {
			api.InstanceStopped, "start", func(t *testing.T, w *world) { must(t, w.nodes[0].Fake.UndefineDomain(t.Context(), web)) },
			api.CodeNotFound, "not defined on this host",
		},

		"shelve while a volume moves": {
			api.InstanceRunning, "shelve", func(_ *testing.T, w *world) { w.nodes[0].open = []api.Migration{{ID: "m", InstanceID: web}} },
			api.CodeMigrationActive, "migration m",
		},
		"shelve of a locked one": {api.InstanceRunning, "shelve", func(_ *testing.T, w *world) { w.registry.inst.Locked = true }, api.CodeInstanceLocked, "locked"},
		"shelve with a managed save": {
			api.InstanceRunning, "shelve", func(t *testing.T, w *world) { must(t, w.nodes[0].Save(web)) },
			api.CodeStateForbidden, "managedsave-remove",
		},
		"shelve of one that leans on its host": {
			api.InstanceRunning, "shelve", func(t *testing.T, w *world) { must(t, w.nodes[0].SetLeansOn(web, "a GPU")) },
			api.CodeUnsupportedDisk, "cannot shelve instance web: its definition has a GPU, which other hosts may not have; take that out of the definition, or only stop the instance, which stays on this host then: `volferryctl instance stop web`",
		},
		"shelve with a disk that is encrypted since": {
			api.InstanceStopped, "shelve", func(t *testing.T, w *world) {
				f := w.nodes[0].Fake
				def, err := f.DiskDefinition(t.Context(), web, hv.Config, "vdb")
				must(t, err)
				disk, err := f.ParseDisk(def)
				must(t, err)
				disk.Uncarried = "<encryption> in its <source>"
				edited, err := json.Marshal(disk)
				must(t, err)
				must(t, f.DetachDisk(t.Context(), web, hv.Config, "vdb"))
				must(t, f.AttachDisk(t.Context(), web, hv.Config, hv.DiskSpec{Target: "vdb", Definition: string(edited)}))
			},
			api.CodeUnsupportedDisk, "disk vdb has <encryption>",
		},
		"shelve with a disk that is no volume": {
			api.InstanceRunning, "shelve", func(_ *testing.T, w *world) { w.registry.atts = w.registry.atts[:1] },
			api.CodeUnsupportedDisk, "disk vdb is no volume",
		},
		"shelve with another disk than is known": {
			api.InstanceRunning, "shelve", func(_ *testing.T, w *world) { w.registry.atts[1].Location.Path = "/shared/other.raw" },
			api.CodeChainChanged, "disk vdb",
		},
		"shelve of a guest that runs on another image than its definition": {
			api.InstanceRunning, "shelve", func(t *testing.T, w *world) {
				f := w.nodes[0].Fake
				dom, err := f.Domain(t.Context(), web)
				must(t, err)
				right := dom.ConfigDisk("vda").Chain
				must(t, f.CreateImage("/released.raw", hvtest.Raw, 16*hvtest.BlockSize))
				must(t, f.Destroy(web))
				must(t, f.SetConfigChain(t.Context(), web, "vda", []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: "/released.raw"}}))
				must(t, f.Start(web))
				must(t, f.SetConfigChain(t.Context(), web, "vda", right))
			},
			api.CodeChainChanged, "the running guest's disk vda is at /released.raw",
		},
		"shelve in an attach": {
			api.InstanceRunning, "shelve", func(_ *testing.T, w *world) { w.registry.atts[1].State = api.AttachmentAttaching },
			api.CodeConflict, "attaching",
		},
		"shelve of a shelved one": {api.InstanceShelved, "keep", nil, api.CodeStateForbidden, "already"},

		"unshelve of a running one": {api.InstanceRunning, "unshelve", nil, api.CodeStateForbidden, "it is running"},
		"unshelve without root": {
			api.InstanceShelvedOffloaded, "unshelve", func(_ *testing.T, w *world) { w.registry.loseRoot() },
			api.CodeRootVolumeMissing, "cannot unshelve instance web without a root device volume",
		},
		"unshelve where its id is taken": {api.InstanceShelvedOffloaded, "unshelve", func(t *testing.T, w *world) {
			must(t, w.nodes[0].Define(hv.Domain{ID: web, Name: "other"}))
		}, api.CodeConflict, "do not undefine it; docs/how-to/lose-a-host.md"},
		"unshelve where a domain of its id is on its volumes": {api.InstanceShelvedOffloaded, "unshelve", func(t *testing.T, w *world) {
			must(t, w.nodes[0].Define(onVolumes(w, "other")))
		}, api.CodeConflict, "undefine it (`virsh undefine --keep-nvram other`)"},
		"unshelve where a domain of its id is on its volumes but one": {api.InstanceShelvedOffloaded, "unshelve", func(t *testing.T, w *world) {
			must(t, w.nodes[0].CreateImage("/moved.raw", hvtest.Raw, testSize))
			dom := onVolumes(w, "other")
			dom.Config[1].Chain = []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: "/moved.raw"}}
			must(t, w.nodes[0].Define(dom))
		}, api.CodeConflict, "its disk vdb is at /moved.raw, and volume"},
		"unshelve where a domain of its id runs": {api.InstanceShelvedOffloaded, "unshelve", func(t *testing.T, w *world) {
			must(t, w.nodes[0].Define(onVolumes(w, "other")))
			must(t, w.nodes[0].guards.Clear(web, guard.OwnerShelf))
			must(t, w.nodes[0].Fake.Start(web))
		}, api.CodeConflict, "its guest runs on the volumes"},
		"unshelve of one of which the journal says another place": {api.InstanceShelvedOffloaded, "unshelve", func(_ *testing.T, w *world) {
			w.nodes[0].unrecorded = api.Errorf(api.CodeChainChanged, "the journal has it at /dst.raw")
		}, api.CodeChainChanged, "cannot unshelve instance web: the journal has it at /dst.raw"},
		"shelve of one of which the journal says another place": {api.InstanceStopped, "shelve", func(_ *testing.T, w *world) {
			w.nodes[0].unrecorded = api.Errorf(api.CodeChainChanged, "the journal has it at /dst.raw")
		}, api.CodeChainChanged, "cannot shelve instance web: the journal has it at /dst.raw"},
		"unshelve while the registry is away": {
			api.InstanceShelvedOffloaded, "unshelve", func(_ *testing.T, w *world) { w.registry.Down = true },
			api.CodeRegistryUnavailable, "",
		},
		"shelve while the registry is away": {
			api.InstanceRunning, "shelve", func(_ *testing.T, w *world) { w.registry.Down = true },
			api.CodeRegistryUnavailable, "",
		},
		"start while libvirt is away": {
			api.InstanceStopped, "start", func(_ *testing.T, w *world) { w.nodes[0].SetAway(true) },
			api.CodeHypervisorUnavailable, "nothing was changed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, c.state)
				if c.spoil != nil {
					c.spoil(t, w)
				}
				d := startDaemon(t, w.nodes[0])
				g, runner := d.Now()
				told := len(w.registry.changes)
				_, err := begins[c.what](t.Context(), g, testOp)
				wantCode(t, err, c.want)
				if !strings.Contains(err.Error(), c.says) {
					t.Errorf("%q does not say %q", err, c.says)
				}
				if len(runner.Active()) > 0 || len(w.registry.changes) != told {
					t.Errorf("ops %v, told %v", runner.Active(), w.registry.changes)
				}
			})
		})
	}
}

// run runs an op to its end. An op that was undone early must have been refused as well.
func (d *daemon) run(t *testing.T, what string) op.Status {
	t.Helper()
	g, runner := d.Now()
	id := d.node.world.newOp()
	_, refused := begins[what](t.Context(), g, id)
	st, err := runner.Wait(t.Context(), id)
	must(t, err)
	if refused != nil && api.CodeOf(refused) != api.Code(st.Failure.Code) {
		t.Errorf("refused with %v, and the op with %+v", refused, st.Failure)
	}
	return st
}

func TestANameThatIsTakenLeavesWhatHasItAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, api.InstanceShelvedOffloaded)
		alpha := w.nodes[0]
		must(t, alpha.Define(hv.Domain{ID: testOp, Name: "web"}))
		st := startDaemon(t, alpha).run(t, "unshelve")
		if st.State != op.StateUndone || st.Failure.Code != string(api.CodeConflict) {
			t.Errorf("the op is %s: %+v", st.State, st.Failure)
		}
		if _, err := alpha.Fake.Domain(t.Context(), testOp); err != nil {
			t.Errorf("the other domain: %v", err)
		}
		must(t, w.settled())
	})
}

// Granted instances may be started and stopped while the registry does not answer.
func TestPowerGoesOnFromWhatIsRememberedWhileTheRegistryIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, api.InstanceStopped)
		alpha := w.nodes[0]
		alpha.known = w.registry.inst
		w.registry.SetDown(true)
		d := startDaemon(t, alpha)
		for _, what := range []string{"start", "pause", "unpause", "reboot", "stop"} {
			if st := d.run(t, what); st.State != op.StateDone {
				t.Errorf("%s: %s %+v", what, st.State, st.Failure)
			}
		}
		alpha.known.BlockDeviceMappings = []api.BlockDeviceMapping{{Device: "vda", BootIndex: alpha.known.BlockDeviceMappings[0].BootIndex}}
		g, _ := d.Now()
		_, err := g.BeginStart(t.Context(), testOp, "web")
		wantCode(t, err, api.CodeRootVolumeMissing)
	})
}

func TestAGuestThatDoesNotObeyRunsOn(t *testing.T) {
	for how, want := range map[hvtest.Shutdown]struct {
		state op.State
		took  time.Duration
	}{
		hvtest.ShutdownObeys:   {op.StateDone, 0},
		hvtest.ShutdownSlow:    {op.StateDone, 10 * time.Second},
		hvtest.ShutdownIgnores: {op.StateUndone, 2 * time.Minute},
	} {
		t.Run(string(how), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, api.InstanceRunning)
				must(t, w.nodes[0].SetShutdown(web, how))
				began := time.Now()
				st := startDaemon(t, w.nodes[0]).run(t, "stop")
				if took := time.Since(began).Truncate(10 * time.Second); st.State != want.state || took != want.took {
					t.Errorf("the op is %s after %s, want %s after %s", st.State, took, want.state, want.took)
				}
				if want.state == op.StateUndone && (st.Failure.Code != string(api.CodeInstanceBusy) || !strings.Contains(st.Failure.Message, "may still do so later") || !strings.Contains(st.Failure.Message, "--force")) {
					t.Errorf("the failure is %+v", st.Failure)
				}
				must(t, w.settled())
			})
		})
	}
}

func TestForceCutsThePowerOfWhateverTheGuestDoes(t *testing.T) {
	for _, from := range []api.InstanceState{api.InstanceRunning, api.InstancePaused} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, from)
			must(t, w.nodes[0].SetShutdown(web, hvtest.ShutdownIgnores))
			if st := startDaemon(t, w.nodes[0]).run(t, "force"); st.State != op.StateDone {
				t.Errorf("the op is %s: %+v", st.State, st.Failure)
			}
			if got := w.registry.now().inst.State; got != api.InstanceStopped {
				t.Errorf("the registry has it as %s as soon as the op is done", got)
			}
		})
	}
}

func TestForceCutsThePowerOfAGuestThatIsStillAsked(t *testing.T) {
	for _, asking := range []string{"stop", "shelve"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, api.InstanceRunning)
			must(t, w.nodes[0].SetShutdown(web, hvtest.ShutdownIgnores))
			d := startDaemon(t, w.nodes[0])
			began := time.Now()
			done := make(chan op.Status, 1)
			go func() { done <- d.run(t, asking) }()
			synctest.Wait() // the guest is being asked now
			g, runner := d.Now()
			const cut = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0aab"
			_, err := g.BeginStop(t.Context(), cut, "web", api.InstanceStop{Force: true})
			must(t, err)
			forced, err := runner.Wait(t.Context(), cut)
			must(t, err)
			first := <-done
			if took := time.Since(began); took > 2*time.Second || first.State != op.StateDone || forced.State != op.StateDone {
				t.Errorf("%s is %s (%+v) and the power cut %s (%+v), after %s", asking, first.State, first.Failure, forced.State, forced.Failure, took)
			}
			must(t, w.settled())
		})
	}
}

func TestASecondStopHasWhatTheFirstOneBrought(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, api.InstanceRunning)
		must(t, w.nodes[0].SetShutdown(web, hvtest.ShutdownSlow))
		d := startDaemon(t, w.nodes[0])
		done := make(chan op.Status, 1)
		go func() { done <- d.run(t, "stop") }()
		synctest.Wait() // the guest was asked, and is slow
		g, runner := d.Now()
		const again = "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0aab"
		_, err := g.BeginStop(t.Context(), again, "web", api.InstanceStop{})
		must(t, err)
		second, err := runner.Wait(t.Context(), again)
		must(t, err)
		if first := <-done; first.State != op.StateDone || second.State != op.StateDone {
			t.Errorf("the first stop is %s (%+v), the second %s (%+v)", first.State, first.Failure, second.State, second.Failure)
		}
		must(t, w.settled())
	})
}

// A shelve of a guest that does not shut down changes nothing.
func TestAShelveOfAGuestThatDoesNotObeyIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, api.InstanceRunning)
		must(t, w.nodes[0].SetShutdown(web, hvtest.ShutdownIgnores))
		st := startDaemon(t, w.nodes[0]).run(t, "shelve")
		if st.State != op.StateUndone || st.Failure.Code != string(api.CodeInstanceBusy) || len(w.registry.changes) > 0 {
			t.Errorf("the op is %s: %+v, told %v", st.State, st.Failure, w.registry.changes)
		}
		must(t, w.settled())
		if got := w.registry.now().inst.State; got != api.InstanceRunning {
			t.Errorf("the instance is %s", got)
		}
	})
}

// A guest that was stopped for a failed shelve runs again.
func TestAShelveThatTheRegistryRefusesLeavesTheGuestRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, api.InstanceRunning)
		w.registry.refuses = api.InstanceShelved
		st := startDaemon(t, w.nodes[0]).run(t, "shelve")
		if got := w.registry.now().inst.State; st.State != op.StateUndone || got != api.InstanceRunning {
			t.Errorf("the op is %s, the instance %s", st.State, got)
		}
		must(t, w.settled())
	})
}

// The guest is started again even if libvirtd does not answer for a moment.
func TestAShelveThatIsUndoneStartsItsGuestOnceLibvirtIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, api.InstanceRunning)
		w.registry.refuses = api.InstanceShelved
		w.nodes[0].Inject(hvtest.Fault{Call: "PowerOn", Err: hv.ErrUnavailable})
		st := startDaemon(t, w.nodes[0]).run(t, "shelve")
		dom, err := w.nodes[0].Fake.Domain(t.Context(), web)
		must(t, err)
		if st.State != op.StateUndone || dom.State != hv.StateRunning {
			t.Errorf("the op is %s, the guest %s", st.State, dom.State)
		}
		must(t, w.settled())
	})
}

// Over the shelf to another host, the instance keeps its identity and gets its present volumes.
func TestAnInstanceComesBackOnAnotherHostAsItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, api.InstanceRunning)
		alpha, beta := startDaemon(t, w.nodes[0]), startDaemon(t, w.nodes[1])
		before, err := w.nodes[0].Fake.Domain(t.Context(), web)
		must(t, err)
		if st := alpha.run(t, "shelve"); st.State != op.StateDone {
			t.Fatalf("the shelve is %s: %+v", st.State, st.Failure)
		}
		must(t, w.settled())
		moved := "/shared/moved.raw"
		must(t, w.nodes[1].CreateImage(moved, hvtest.Raw, testSize))
		w.registry.atts[1].Location.Path, w.registry.atts[1].Mode = moved, api.ModeRO
		if st := beta.run(t, "unshelve"); st.State != op.StateDone {
			t.Fatalf("the unshelve is %s: %+v", st.State, st.Failure)
		}
		pass(time.Minute) // for the start
		must(t, w.settled())
		after, err := w.nodes[1].Fake.Domain(t.Context(), web)
		must(t, err)
		if after.State != hv.StateRunning {
			t.Errorf("it is %s", after.State)
		}
		for i, d := range after.Config {
			was := before.Config[i]
			if d.Target != was.Target || d.Address != was.Address || d.Serial != was.Serial || d.Bus != was.Bus {
				t.Errorf("disk %+v was %+v", d, was)
			}
		}
		if d := after.ConfigDisk("vdb"); d.Top().Path != moved || !d.ReadOnly {
			t.Errorf("disk vdb is %+v", d)
		}
		if has, _ := w.nodes[0].guards.Has(web, guard.OwnerShelf); !has {
			t.Error("the host that it left does not guard it any more")
		}
	})
}

// The domain is edited between its storing on the shelf and its removal from this host: the edit is
// not lost.
func TestWhatWasEditedAfterItWasStoredIsStoredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, api.InstanceStopped)
		alpha := w.nodes[0]
		d := startDaemon(t, alpha)
		w.registry.onMove = func(to api.InstanceState) {
			if to == api.InstanceShelved && len(w.registry.changes) == 1 {
				alpha.SetNVRAM(web, []byte("boot from the net"))
			}
		}
		if st := d.run(t, "shelve"); st.State != op.StateDone {
			t.Fatalf("the op is %s: %+v", st.State, st.Failure)
		}
		got, err := shelf.UnpackNVRAM(w.registry.now().shelf.NVRAM)
		must(t, err)
		if string(got) != "boot from the net" {
			t.Errorf("stored is %q", got)
		}
	})
}

func TestARepeatedRequestIsTheSameOpAndAnotherOneIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, api.InstanceRunning)
		d := startDaemon(t, w.nodes[0])
		g, runner := d.Now()
		for range 2 {
			if _, err := g.BeginStop(context.Background(), testOp, "web", api.InstanceStop{}); err != nil {
				t.Fatal(err)
			}
			if st, err := runner.Wait(t.Context(), testOp); err != nil || st.State != op.StateDone {
				t.Errorf("the op is %s (%v)", st.State, err)
			}
		}
		_, err := g.BeginStop(t.Context(), testOp, "web", api.InstanceStop{Force: true})
		wantCode(t, err, api.CodeIdempotencyMismatch)
	})
}

// onVolumes returns a domain with the instance's id, and its volumes as disks.
func onVolumes(w *world, name string) hv.Domain {
	dom := hv.Domain{ID: web, Name: name}
	for _, a := range w.registry.atts {
		dom.Config = append(dom.Config, hv.Disk{Target: a.Device, Bus: "virtio", Device: "disk", Chain: []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: a.Location.Path}}})
	}
	return dom
}
