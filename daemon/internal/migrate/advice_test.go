// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// operator simulates a person who runs the commands of an error.
func (d *daemon) operator() *hosttest.Operator {
	if d.typist == nil {
		d.typist = &hosttest.Operator{Fake: d.world.Fake, Volferryctl: d.volferryctl}
	}
	return d.typist
}

// types runs command lines, one after the other.
func (d *daemon) types(lines ...string) {
	d.t.Helper()
	for _, line := range lines {
		d.t.Logf("typed: %s", line)
		must(d.t, d.operator().Type(line))
		pass(time.Second)
	}
}

// follow runs the commands of a standstill.
func (d *daemon) follow(mig api.Migration) {
	d.t.Helper()
	cure := mig.KnownCure()
	if mig.State != api.MigrationNeedsOperator || cure == "" {
		d.t.Fatalf("the migration is %s and names no commands: %v", mig.State, mig.Error)
	}
	if again, _ := mig.Cures(); again != cure {
		d.t.Errorf("the operator is told %q, and the error says %q", again, cure)
	}
	d.t.Logf("told: %v", mig.Error)
	d.types(strings.Split(cure, api.CureSeparator)...)
}

// volferryctl runs a command line of volferryctl on this host.
func (d *daemon) volferryctl(words []string) error {
	ctx := context.Background()
	switch strings.Join(words[:2], " ") {
	case "volume which":
		_, err := d.manager().Which.Find(ctx, d.world.Registry.CurrentVolume())
		return err
	case "instance repair":
		return d.repairWith(ctx, slices.Contains(words, "--source-unwritten"))
	case "migration copy", "migration complete", "migration cancel":
		c := Call{OpID: uuid.NewString(), Subject: words[2]}
		do := map[string]func(*Manager, context.Context, Call) (api.Migration, string, error){
			"copy": (*Manager).Copy, "complete": (*Manager).Complete, "cancel": (*Manager).Cancel,
		}[words[1]]
		if len(words) > 3 {
			c.DstAttachmentID = words[3]
		}
		_, id, err := do(d.manager(), ctx, c)
		if err == nil {
			_, err = d.runner().Wait(ctx, id)
		}
		return err
	}
	return errors.New("nobody can type that here")
}

// repair repairs the migration's disk, like the repair of its instance.
func (d *daemon) repair(ctx context.Context) error { return d.repairWith(ctx, false) }

func (d *daemon) repairWith(ctx context.Context, srcUnwritten bool) error {
	standing, err := d.manager().Monitor.Standing(ctx, testInstance)
	if err != nil || standing {
		return errors.Join(err, d.manager().Monitor.NameStanding(ctx, testInstance))
	}
	misnamed, err := d.manager().Monitor.Misnamed(ctx, testInstance, srcUnwritten)
	if err != nil {
		return err
	}
	for _, named := range misnamed {
		err = errors.Join(err, d.world.SetConfigChain(ctx, testInstance, named.Target, named.Chain))
	}
	return err
}

// An operator who runs the commands of the error as they are brings the migration to its end, with
// all writes of the guest.
func TestTheCommandsThatAnErrorNamesBringTheMigrationToItsEnd(t *testing.T) {
	cancels := func(d *daemon, id string) {
		_, _, err := d.manager().Cancel(context.Background(), d.call(id))
		must(d.t, err)
	}
	loses := func(d *daemon) {
		d.world.Fake.Inject(hvtest.Fault{Call: "Pivot", Nth: 1, After: true, Err: hv.ErrUnavailable, Do: func() { _ = d.world.Fake.Lose(testInstance) }})
	}
	snapshotAt := func(step string) func(*testing.T, *daemon) string {
		return func(t *testing.T, d *daemon) string {
			d.journal.AfterAppend(func(r op.Record) {
				if r.Step == step && r.Kind == op.EventStarted {
					d.journal.AfterAppend(nil)
					d.world.SnapshotByUser(t)
				}
			})
			return d.migrate()
		}
	}
	for name, c := range map[string]struct {
		bring func(t *testing.T, d *daemon) (id string)
		end   api.MigrationState
	}{
		"a snapshot over the overlay before src is seen to be frozen": {snapshotAt("verify_frozen"), api.MigrationCancelled},
		"a snapshot over the destination as the complete settles":     {snapshotAt("settle"), api.MigrationCompleted},
		"a guest that libvirt lost in a complete": {func(_ *testing.T, d *daemon) string {
			loses(d)
			return d.migrate()
		}, api.MigrationCompleted},
		"a guest that libvirt lost in a complete of a mirror": {func(_ *testing.T, d *daemon) string {
			loses(d)
			return d.migrateTo(api.MigrationTarget{ToPool: "new", Method: move.MethodMirror})
		}, api.MigrationCompleted},
		"a guest that libvirt lost in a cancel": {func(_ *testing.T, d *daemon) string {
			d.world.Copier.Gate = make(chan struct{})
			id := d.migrate()
			pass(time.Second)
			loses(d)
			cancels(d, id)
			close(d.world.Copier.Gate)
			return id
		}, api.MigrationCancelled},
		"a pool that is off": {func(_ *testing.T, d *daemon) string {
			mig := d.begin(toNewPool)
			d.world.AddPool(hv.PoolInfo{Name: "new", Type: "dir", Path: "/new", CapacityBytes: 1 << 40, FreeBytes: 1 << 40})
			cancels(d, mig.ID)
			return mig.ID
		}, api.MigrationCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				id := c.bring(t, d)
				d.follow(d.untilItStands(id))
				mig := d.untilItStands(id)
				if d.world.Exists(migratetest.ForeignPath) { // the owner of the snapshot deletes it
					must(t, d.world.Images.Remove(context.Background(), migratetest.ForeignPath))
				}
				switch {
				case mig.State != c.end:
					t.Errorf("the migration is %s in the end, want %s: %v", mig.State, c.end, mig.Error)
				case c.end == api.MigrationCompleted:
					d.moved(mig)
				default:
					d.stayed()
				}
			})
		})
	}
}
