// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
)

// ledger is what one client was told, of a volume that nobody else touches.
type ledger struct {
	*cluster
	host     *host
	registry *client.Registry
	// at is held for reading while a request is on its way, and for writing by who
	// compares.
	at       *sync.RWMutex
	instance string
	told     []acknowledged
	volume   *api.Volume // nil is one that is not there
	cycle    int
}

// acknowledged is a request that was answered, and can be sent again.
type acknowledged struct {
	what, key string
	send      func(context.Context) (any, error)
	answer    any
}

// The registry is killed at any moment of a load. What it answered before is
// there afterwards, the same request again has the same answer, and nothing is
// half done.
func TestNoAcknowledgedAnswerIsLostByDeath(t *testing.T) {
	const writers = 16
	kills := scaled(5, 60)
	r := random(seedOf(t), 0)
	c := newCluster(t, "a", "b")
	ledgers := c.ledgers(t, writers, c.hosts...)
	at := ledgers[0].at
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var group errgroup.Group
	for _, l := range ledgers {
		group.Go(func() error {
			for ctx.Err() == nil {
				if err := l.life(t.Context(), ctx.Done()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	trouble := trouble{}
	compared := make([]int, writers)
	for range kills {
		if err := pause(t.Context(), between(r, 30*time.Millisecond, 400*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if err := trouble.killAndStart(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		at.Lock()
		for i, l := range ledgers {
			l.compare(t, l.told[compared[i]:])
			compared[i] = len(l.told)
		}
		c.checkInvariants(t)
		at.Unlock()
	}
	stop()
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, l := range ledgers {
		l.compare(t, l.told)
		total += len(l.told)
	}
	t.Logf("%d answers, %d kills", total, trouble.kills)
	c.checkEachDoneOnce(t, ledgers)
}

// ledgers are those of n clients on these hosts, before they begin.
func (c *cluster) ledgers(t *testing.T, n int, hosts ...*host) []*ledger {
	t.Helper()
	var at sync.RWMutex
	ledgers := make([]*ledger, n)
	for i := range ledgers {
		h := hosts[i%len(hosts)]
		ledgers[i] = &ledger{cluster: c, host: h, registry: c.of(t, h), at: &at, instance: c.instance(t, h)}
	}
	return ledgers
}

// compare holds what was told against what the registry has now.
func (l *ledger) compare(t *testing.T, told []acknowledged) {
	t.Helper()
	for _, a := range told {
		again, _, err := insist(t.Context(), a.send)
		if err != nil {
			t.Errorf("%s %s was done, and the same again is refused: %v", a.what, a.key, err)
		} else if diff := cmp.Diff(a.answer, again); diff != "" {
			t.Errorf("%s %s has another answer (-before +after):\n%s", a.what, a.key, diff)
		}
	}
	if l.volume == nil {
		return
	}
	now := reads(t, func(ctx context.Context) (api.Volume, error) { return l.local.Volume(ctx, l.volume.ID) })
	if diff := cmp.Diff(summary(*l.volume), summary(now)); diff != "" {
		t.Errorf("volume %s is not what it was acknowledged to be (-want +got):\n%s", now.ID, diff)
	}
}

// summary is what answers tell of a volume.
func summary(v api.Volume) map[string]any {
	out := map[string]any{"path": v.Location.Path, "generation": v.Generation, "migration": v.MigrationID}
	for _, a := range v.Attachments {
		out[a.ID] = a.State
	}
	return out
}

// do sends a request until it is answered, and notes the answer with what it makes
// of the volume.
func do[T any](ctx context.Context, l *ledger, what string, send func(ctx context.Context, key string) (T, error), effect func(T)) error {
	l.at.RLock()
	defer l.at.RUnlock()
	key := what + "-" + uuid.NewString()
	answer, _, err := insist(ctx, func(ctx context.Context) (T, error) { return send(ctx, key) })
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	again := func(ctx context.Context) (any, error) { return send(ctx, key) }
	l.told = append(l.told, acknowledged{what: what, key: key, send: again, answer: answer})
	effect(answer)
	return nil
}

// life is that of one volume, from its registration on. It ends early, between two
// steps, once done is closed.
func (l *ledger) life(ctx context.Context, done <-chan struct{}) error {
	volume, src, dst := uuid.NewString(), uuid.NewString(), uuid.NewString()
	l.cycle++
	steps := []func() error{
		func() error { return l.register(ctx, volume) },
		func() error { return l.reserve(ctx, volume, src) },
		func() error { return l.step(ctx, src, api.AttachmentReserved, api.AttachmentAttaching) },
		func() error { return l.step(ctx, src, api.AttachmentAttaching, api.AttachmentAttached) },
	}
	last := src
	if l.cycle%2 == 0 {
		last = dst
	}
	steps = append(steps, l.migration(ctx, volume, src, dst, last == dst)...)
	steps = append(steps,
		func() error { return l.step(ctx, last, api.AttachmentAttached, api.AttachmentDetaching) },
		func() error { return l.release(ctx, last) },
	)
	for _, step := range steps {
		select {
		case <-done:
			return nil
		default:
		}
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (l *ledger) register(ctx context.Context, id string) error {
	in := api.VolumeRegister{ID: id, Name: "v-" + id, Status: api.VolumeAvailable, Type: oneType, Host: l.host.id, Location: placeOf(id)}
	return do(ctx, l, "register", func(ctx context.Context, key string) (api.Volume, error) {
		return l.registry.RegisterVolume(ctx, key, in)
	}, func(v api.Volume) { l.volume = &v })
}

func (l *ledger) reserve(ctx context.Context, volume, id string) error {
	in := reserveFor(l.host, volume, l.instance, id, 1)
	return do(ctx, l, "reserve", func(ctx context.Context, key string) (api.Attachment, error) {
		return l.registry.ReserveAttachment(ctx, key, in)
	}, func(a api.Attachment) { l.volume.Attachments = append(l.volume.Attachments, a) })
}

func (l *ledger) step(ctx context.Context, id string, from, to api.AttachmentState) error {
	in := stepOf(l.host, from, to)
	return do(ctx, l, "step", func(ctx context.Context, key string) (api.Attachment, error) {
		return l.registry.TransitionAttachment(ctx, key, id, in)
	}, func(a api.Attachment) { l.volume.Attachments = []api.Attachment{a} })
}

func (l *ledger) release(ctx context.Context, id string) error {
	in := api.AttachmentRelease{Host: l.host.id, Epoch: l.host.epoch.Load(), OpID: "op-" + id}
	return do(ctx, l, "release", func(ctx context.Context, key string) (api.Attachment, error) {
		return l.registry.ReleaseAttachment(ctx, key, id, in)
	}, func(api.Attachment) { l.volume.Attachments = nil })
}

// migration is the steps of one, which ends at dst or is cancelled.
func (l *ledger) migration(ctx context.Context, volume, src, dst string, complete bool) []func() error {
	id := uuid.NewString()
	in := api.MigrationRegister{
		ID: id, VolumeID: volume, SrcAttachmentID: src, DstAttachmentID: dst, Host: l.host.id, Epoch: l.host.epoch.Load(),
		Generation: 1, Dst: placeOf(id), Method: "auto", OpID: "op-" + id,
	}
	steps := []func() error{func() error {
		return do(ctx, l, "migrate", func(ctx context.Context, key string) (api.Migration, error) {
			return l.registry.RegisterMigration(ctx, key, in)
		}, func(m api.Migration) {
			l.volume.MigrationID = m.ID
			l.volume.Attachments = append(l.volume.Attachments, api.Attachment{ID: dst, State: api.AttachmentReserved})
		})
	}}
	states := []api.MigrationState{api.MigrationStarting, api.MigrationStarted, api.MigrationCopying, api.MigrationCancelled}
	if complete {
		states = []api.MigrationState{api.MigrationStarting, api.MigrationCopied, api.MigrationCompleting, api.MigrationCompleted}
	}
	for i, to := range states[1:] {
		in := api.MigrationTransition{From: states[i : i+1], To: to, Host: l.host.id, Epoch: l.host.epoch.Load(), OpID: string(to) + id}
		steps = append(steps, func() error {
			return do(ctx, l, "advance", func(ctx context.Context, key string) (api.Migration, error) {
				return l.registry.TransitionMigration(ctx, key, id, in)
			}, func(m api.Migration) { ended(l.volume, m) })
		})
	}
	return steps
}

// ended is what the end of a migration makes of its volume.
func ended(v *api.Volume, m api.Migration) {
	if !m.State.Final() {
		return
	}
	v.MigrationID = ""
	v.Attachments = []api.Attachment{{ID: m.SrcAttachmentID, State: api.AttachmentAttached}}
	if m.State == api.MigrationCompleted {
		v.Attachments[0].ID, v.Location = m.DstAttachmentID, m.Dst
		v.Generation++
	}
}

// checkEachDoneOnce looks in the audit trail for what was acknowledged.
func (c *cluster) checkEachDoneOnce(t *testing.T, ledgers []*ledger) {
	t.Helper()
	objects := map[string]int{}
	for e := range c.trail(t) {
		if e.What == "attachment.reserve" || e.What == "attachment.release" || e.What == "migration.register" || e.What == "volume.register" {
			objects[e.What+" "+e.Object]++
		}
	}
	for object, times := range objects {
		if times != 1 {
			t.Errorf("%s is %d times in the audit trail", object, times)
		}
	}
	for _, l := range ledgers {
		for _, a := range l.told {
			if v, ok := a.answer.(api.Volume); ok && objects["volume.register volume/"+v.ID] != 1 {
				t.Errorf("volume %s was registered, and the audit trail does not have it", v.ID)
			}
		}
	}
}
