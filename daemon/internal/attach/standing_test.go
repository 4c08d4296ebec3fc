// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// types carries out the commands in the text of an error, like an operator who types them.
func (d *daemon) types(t *testing.T, text string) {
	t.Helper()
	calls := 0
	person := &hosttest.Operator{Fake: d.world.Fake, Volferryctl: func(words []string) error {
		calls++
		return d.volferryctl(fmt.Sprint("typed-", calls), words)
	}}
	lines := hosttest.CommandsIn(text)
	if len(lines) == 0 {
		t.Fatalf("no commands in %q", text)
	}
	for _, line := range lines {
		t.Logf("typed: %s", line)
		must(t, person.Type(line))
		pass(time.Second)
	}
}

func (d *daemon) volferryctl(opID string, words []string) error {
	if words[2] != "vol" || len(words) > 3 && words[3] != "web" {
		return fmt.Errorf("there is no such volume or instance: %q", words)
	}
	switch strings.Join(words[:2], " ") {
	case "volume which":
		return nil
	case "volume attach":
		in := api.VolumeAttach{Instance: words[3]}
		for i, word := range words {
			switch word {
			case "--device":
				in.Device = words[i+1]
			case "--mode":
				in.Mode = api.Mode(words[i+1])
			}
		}
		_, err := d.attach(opID, in)
		return err
	case "volume detach":
		_, err := d.manager().Detach(context.Background(), opID, words[2], api.VolumeDetach{Instance: words[3]})
		if api.CodeOf(err) == api.CodeNotFound {
			return nil // the waiting detach has ended it
		}
		return err
	}
	return errors.New("nobody can type that here")
}

// when makes something happen once a step, or its undo, has begun.
func (d *daemon) when(step string, kind op.EventKind, happen func()) {
	d.world.journal.AfterAppend(func(r op.Record) {
		if r.Step == step && r.Kind == kind {
			d.world.journal.AfterAppend(nil)
			happen()
		}
	})
}

// plug attaches an image to instance web by hand.
func (d *daemon) plug(t *testing.T, where hv.Where, target, path string) {
	t.Helper()
	if !d.world.Exists(path) {
		must(t, d.world.CreateImage(path, hvtest.Raw, testSize))
	}
	must(t, d.world.Fake.AttachDisk(t.Context(), web, where, hv.DiskSpec{Target: target, Bus: "virtio", Image: hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: path}}))
}

// After any other program's change of the disk, an operator who types the error's commands ends
// with the volume attached or detached, as requested.
func TestTheCommandsOfEachStandstillBringTheOpToItsEnd(t *testing.T) {
	attach := func(d *daemon) error { return failed(d.attach("a", api.VolumeAttach{Instance: "web"})) }
	detach := func(d *daemon) error { return failed(d.detach("d", web)) }
	gaveUp := func(t *testing.T, d *daemon) {
		t.Helper()
		must(t, d.world.SetUnplug(web, hvtest.UnplugWaits))
	}
	answers := func(t *testing.T, d *daemon) {
		t.Helper()
		must(t, d.world.SetUnplug(web, hvtest.UnplugAtOnce))
	}
	for name, c := range map[string]struct {
		bring func(t *testing.T, d *daemon)
		ask   func(d *daemon) error
		// then is the guest's action before the commands are typed.
		then func(t *testing.T, d *daemon)
	}{
		"another disk at the device as a detach is taken back": {func(t *testing.T, d *daemon) {
			gaveUp(t, d)
			d.when(stepNameDetachConfig, op.EventUndoStarted, func() { d.plug(t, hv.Config, "vdb", "/other.raw") })
		}, detach, answers},
		"the volume at another device as a detach is taken back": {func(t *testing.T, d *daemon) {
			gaveUp(t, d)
			d.when(stepNameDetachConfig, op.EventUndoStarted, func() { d.plug(t, hv.Config, "vdx", volPath) })
		}, detach, answers},
		"a snapshot over the disk that the guest is asked for": {func(t *testing.T, d *daemon) {
			gaveUp(t, d)
			d.when(stepNameDetachLive, op.EventStarted, func() { d.snapshot(t) })
		}, detach, answers},
		"the disk is given back to the definition before the release": {func(t *testing.T, d *daemon) {
			d.when(stepNameRelease, op.EventStarted, func() { d.plug(t, hv.Config, "vdb", volPath) })
		}, detach, nil},
		"another image at the device before the release": {func(t *testing.T, d *daemon) {
			in := d.world.input(testAtt, web)
			in.From = api.AttachmentError
			d.world.registry.rows[testAtt] = in.attachment(api.AttachmentError)
			must(t, d.world.Fake.DetachDisk(t.Context(), web, hv.Config, "vdb"))
			must(t, d.world.Fake.DetachDisk(t.Context(), web, hv.Live, "vdb"))
			d.when(stepNameRelease, op.EventStarted, func() { d.plug(t, hv.Config, "vdb", "/other.raw") })
		}, func(d *daemon) error {
			_, err := d.manager().Delete(context.Background(), "x", testAtt, true)
			return err
		}, nil},
		"the definition has the volume at another device as an attach is undone": {func(t *testing.T, d *daemon) {
			d.unattached(t)
			d.world.registry.refuses = api.AttachmentAttached
			d.when(stepNameAttachConfig, op.EventUndoStarted, func() { d.plug(t, hv.Config, "vdx", volPath) })
		}, attach, func(_ *testing.T, d *daemon) { d.world.registry.refuses = "" }},
		"the guest has the volume at another device before it is given back": {func(t *testing.T, d *daemon) {
			d.unattached(t)
			d.world.registry.refuses = api.AttachmentAttached
			d.when(stepNameReserve, op.EventUndoStarted, func() { d.plug(t, hv.Live, "vdx", volPath) })
		}, attach, func(_ *testing.T, d *daemon) { d.world.registry.refuses = "" }},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, d *daemon) {
				d.world.attached(t, testAtt, web)
				c.bring(t, d)
				err := c.ask(d)
				if api.CodeOf(err) != api.CodeNeedsOperator {
					t.Fatalf("%v, want needs_operator", err)
				}
				t.Logf("told: %v", err)
				if c.then != nil {
					c.then(t, d)
				}
				told := err.Error()
				d.types(t, told)
				_, runner := d.Now()
				for _, st := range runner.Active() {
					t.Errorf("op %s is left in step %s: %+v", st.Op.Kind, st.Step, st.Failure)
				}
				doms, err := d.world.Fake.Domains(t.Context())
				must(t, err)
				must(t, d.world.atRest(doms)) // earlier findings are the other program's fault
				if attached := len(d.world.registry.all()); strings.Contains(told, "being attached") != (attached == 1) {
					t.Errorf("there are %d attachments in the end", attached)
				}
			}, hv.StateRunning)
		})
	}
}

// unattached detaches the volume from instance web by hand.
func (d *daemon) unattached(t *testing.T) {
	t.Helper()
	for _, where := range []hv.Where{hv.Live, hv.Config} {
		must(t, d.world.Fake.DetachDisk(t.Context(), web, where, "vdb"))
	}
	delete(d.world.registry.rows, testAtt)
}

// snapshot takes an external snapshot of the guest's disk, like an operator.
func (d *daemon) snapshot(t *testing.T) {
	t.Helper()
	below := hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: volPath}
	must(t, d.world.Fake.CreateOverlay("/backup/snap.qcow2", below, testSize))
	must(t, d.world.Fake.PutOverlay(t.Context(), web, "vdb", hv.Image{Type: hv.SourceFile, Format: hvtest.Qcow2, Path: "/backup/snap.qcow2"}))
}

// The registry did not answer when the guest released the disk, and now refuses to release the
// volume.
func TestTheCommandOfAReleaseThatIsRefusedLateGoesOnWithIt(t *testing.T) {
	for name, c := range map[string]struct{ spoil, mend func(t *testing.T, d *daemon) }{
		"by a policy": {
			func(_ *testing.T, d *daemon) { d.world.registry.refuses = "released" },
			func(_ *testing.T, d *daemon) { d.world.registry.refuses = "" },
		},
		"since somebody has given the guest the disk again": {
			func(t *testing.T, d *daemon) { d.plug(t, hv.Config, "vdb", volPath) }, func(*testing.T, *daemon) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, d *daemon) {
				d.world.attached(t, testAtt, web)
				d.when(stepNameRelease, op.EventStarted, func() { d.world.registry.SetDown(true) })
				must(t, failed(d.detach("d", web)))
				c.spoil(t, d)
				d.world.registry.SetDown(false)
				_, runner := d.Now()
				runner.Wake("registry")
				pass(time.Minute)
				st, err := runner.Status(t.Context(), lateID("d"))
				must(t, err)
				if st.State != op.StateNeedsOperator {
					t.Fatalf("the release is %s: %+v", st.State, st.Failure)
				}
				c.mend(t, d)
				d.types(t, st.Failure.Message)
				pass(time.Minute)
				doms, err := d.world.Fake.Domains(t.Context())
				must(t, err)
				must(t, d.world.atRest(doms))
				d.world.wantNone(t)
			}, hv.StateRunning)
		})
	}
}
