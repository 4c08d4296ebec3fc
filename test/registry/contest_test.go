// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
)

// lane is a place where one contest follows the other: a volume that is attached
// at host a, and an instance of host b that wants it too.
type lane struct {
	*cluster
	a, b         *client.Registry
	volume       api.Volume
	atA          string
	instanceA    string
	instanceB    string
	attachedWins int
	rounds       int
}

// Attach at host b and migrate at host a, at once: exactly one is done, and the
// other is told which rule stands against it, also when the registry dies while
// both are asked for.
func TestOfAttachElsewhereAndMigrateExactlyOneWins(t *testing.T) {
	const lanes, rounds = 8, 1000
	seed := seedOf(t)
	c := newCluster(t, "a", "b")
	all := make([]*lane, lanes)
	for i := range all {
		all[i] = c.newLane(t)
	}
	group, ctx := errgroup.WithContext(t.Context())
	haunted, stop := context.WithCancel(ctx)
	defer stop()
	trouble := trouble{every: 50 * time.Millisecond, until: 400 * time.Millisecond}
	ended := make(chan error, 1)
	go func() { ended <- trouble.haunt(haunted, c, random(seed, 0)) }()
	for i, l := range all {
		group.Go(func() error {
			for n := i; n < rounds; n += lanes {
				if err := l.contest(ctx); err != nil {
					return fmt.Errorf("round %d: %w", n, err)
				}
			}
			return nil
		})
	}
	err := group.Wait()
	stop()
	if haunt := <-ended; err != nil || haunt != nil {
		t.Fatal(err, haunt)
	}
	played, wins := 0, 0
	for _, l := range all {
		played, wins = played+l.rounds, wins+l.attachedWins
	}
	t.Logf("%d rounds, attach won %d, %d kills", played, wins, trouble.kills)
	if trouble.kills == 0 {
		t.Error("the registry was never killed")
	}
	if played != rounds || wins == 0 || wins == rounds {
		t.Errorf("%d rounds of %d, attach won %d: a contest that one side always wins shows nothing", played, rounds, wins)
	}
	c.checkInvariants(t)
}

// newLane attaches a volume of a multiattach type at host a.
func (c *cluster) newLane(t *testing.T) *lane {
	t.Helper()
	l := &lane{
		cluster: c, a: c.of(t, c.hosts[0]), b: c.of(t, c.hosts[1]), volume: c.volume(t, c.hosts[0], manyType),
		instanceA: c.instance(t, c.hosts[0]), instanceB: c.instance(t, c.hosts[1]), atA: uuid.NewString(),
	}
	if err := attachTo(t.Context(), l.a, c.hosts[0], l.volume.ID, l.instanceA, l.atA); err != nil {
		t.Fatal(err)
	}
	return l
}

// attachTo attaches a volume in its first generation, in all three steps.
func attachTo(ctx context.Context, r *client.Registry, h *host, volume, instance, id string) error {
	if _, _, err := insist(ctx, func(ctx context.Context) (api.Attachment, error) {
		return r.ReserveAttachment(ctx, "reserve-"+id, reserveFor(h, volume, instance, id, 1))
	}); err != nil {
		return err
	}
	from := api.AttachmentReserved
	for _, to := range []api.AttachmentState{api.AttachmentAttaching, api.AttachmentAttached} {
		step := stepOf(h, from, to)
		if _, _, err := insist(ctx, func(ctx context.Context) (api.Attachment, error) {
			return r.TransitionAttachment(ctx, string(to)+"-"+id, id, step)
		}); err != nil {
			return err
		}
		from = to
	}
	return nil
}

func reserveFor(h *host, volume, instance, id string, generation int64) api.AttachmentReserve {
	return api.AttachmentReserve{
		ID: id, VolumeID: volume, InstanceID: instance, Device: "vdb", Mode: api.ModeRW,
		Host: h.id, Epoch: h.epoch.Load(), Generation: generation, OpID: "op-" + id,
	}
}

func stepOf(h *host, from, to api.AttachmentState) api.AttachmentTransition {
	return api.AttachmentTransition{From: []api.AttachmentState{from}, To: to, Host: h.id, Epoch: h.epoch.Load(), OpID: "op-" + string(to)}
}

// contest is one round. What it made is gone at its end.
func (l *lane) contest(ctx context.Context) error {
	attachment, migration := uuid.NewString(), uuid.NewString()
	var attachErr, migrateErr error
	var group errgroup.Group
	start := make(chan struct{})
	group.Go(func() error {
		<-start
		in := reserveFor(l.hosts[1], l.volume.ID, l.instanceB, attachment, l.volume.Generation)
		_, _, attachErr = insist(ctx, func(ctx context.Context) (api.Attachment, error) {
			return l.b.ReserveAttachment(ctx, "reserve-"+attachment, in)
		})
		return nil
	})
	group.Go(func() error {
		<-start
		in := api.MigrationRegister{
			ID: migration, VolumeID: l.volume.ID, SrcAttachmentID: l.atA, DstAttachmentID: uuid.NewString(), Host: l.hosts[0].id,
			Epoch: l.hosts[0].epoch.Load(), Generation: l.volume.Generation, Dst: placeOf(migration), Method: "mirror", OpID: migration,
		}
		_, _, migrateErr = insist(ctx, func(ctx context.Context) (api.Migration, error) {
			return l.a.RegisterMigration(ctx, "register-"+migration, in)
		})
		return nil
	})
	close(start)
	_ = group.Wait() // their errors are looked at below
	v, _, err := insist(ctx, func(ctx context.Context) (api.Volume, error) { return l.operator.Volume(ctx, l.volume.ID) })
	if err != nil {
		return err
	}
	l.rounds++
	switch {
	case attachErr == nil && api.CodeOf(migrateErr) == api.CodeMultiattached && v.MigrationID == "" && len(v.Attachments) == 2:
		l.attachedWins++
		in := api.AttachmentRelease{Host: l.hosts[1].id, Epoch: l.hosts[1].epoch.Load(), OpID: "op-" + attachment}
		_, _, err = insist(ctx, func(ctx context.Context) (api.Attachment, error) {
			return l.b.ReleaseAttachment(ctx, "release-"+attachment, attachment, in)
		})
	case migrateErr == nil && api.CodeOf(attachErr) == api.CodeMigrationActive && v.MigrationID == migration && len(v.Attachments) == 2:
		in := api.MigrationTransition{
			From: []api.MigrationState{api.MigrationStarting}, To: api.MigrationCancelled, Host: l.hosts[0].id, Epoch: l.hosts[0].epoch.Load(), OpID: "cancel",
		}
		_, _, err = insist(ctx, func(ctx context.Context) (api.Migration, error) {
			return l.a.TransitionMigration(ctx, "cancel-"+migration, migration, in)
		})
	default:
		err = errors.Join(fmt.Errorf("no winner and no loser, or not as they say; the volume is %+v", v), attachErr, migrateErr)
	}
	return err
}
