// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
)

// actor is one client: a part of a host's daemon, or an operator. It does one
// thing after the other and records it.
type actor struct {
	history

	field    *field
	random   *rand.Rand
	host     int // whose daemon, -1 for an operator
	registry *client.Registry
	operator *client.Registry
	// epoch is the one of the call that is being made.
	epoch int64
}

// field is what the actors of a round share.
type field struct {
	*cluster
	volumes   []string
	instances [hostCount][]string
}

func newActor(t *testing.T, f *field, n, host int, seed uint64, begin time.Time) *actor {
	t.Helper()
	a := &actor{history: history{client: n, begin: begin}, field: f, random: random(seed, uint64(n)+1), host: host}
	a.operator = f.operator
	if host >= 0 {
		h := f.hosts[host]
		a.registry = f.client(t, h.tls, "host", func() (string, int64) { return h.id, a.epoch })
	}
	return a
}

// act looks at a volume and does something about it.
func (a *actor) act(ctx context.Context) error {
	volume := pick(a, a.field.volumes)
	seen, err := a.look(ctx, volume)
	if err != nil || seen == nil {
		return err
	}
	c, ok := a.operatorsChoice(*seen)
	if a.host >= 0 {
		c, ok = a.hostsChoice(*seen)
	}
	if !ok {
		return nil
	}
	if c.kind != fenceHost {
		c.volume = volume
	}
	return a.make(ctx, c)
}

func pick[T any](a *actor, from []T) T { return from[a.random.IntN(len(from))] }

// oneIn is true once in n times.
func (a *actor) oneIn(n int) bool { return a.random.IntN(n) == 0 }

// look reads a volume; nil if it is gone.
func (a *actor) look(ctx context.Context, volume string) (*world, error) {
	called := time.Now()
	v, _, err := insist(ctx, func(ctx context.Context) (api.Volume, error) { return a.operator.Volume(ctx, volume) })
	c := call{kind: read, volume: volume, host: max(a.host, 0)}
	if api.CodeOf(err) == api.CodeNotFound {
		a.add(called, c, answer{code: api.CodeNotFound})
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, fmt.Errorf("read volume: %w", err)
	}
	seen, err := a.field.worldOf(v)
	if err != nil {
		return nil, err
	}
	a.add(called, c, answer{seen: &seen})
	return &seen, nil
}

// worldOf is a volume as a read shows it.
func (f *field) worldOf(v api.Volume) (world, error) {
	w := world{deleting: v.Status == api.VolumeDeleting, many: v.Multiattach, generation: v.Generation, move: move{id: v.MigrationID}, keeper: f.hostNamed(v.Host)}
	for _, a := range v.Attachments {
		w.holds = with(w.holds, hold{
			id: a.ID, instance: a.InstanceID, state: a.State, dst: a.Location.Path != v.Location.Path,
			host: f.hostNamed(a.Host),
		})
	}
	if w.status() != v.Status {
		return w, fmt.Errorf("volume %s is %s, and its attachments say %s: %+v", v.ID, v.Status, w.status(), v.Attachments)
	}
	return w, nil
}

func (f *field) hostNamed(name string) int {
	return slices.IndexFunc(f.hosts, func(h *host) bool { return h.name == name })
}

// hostsChoice is what a host's daemon may want with a volume that it sees so. The
// world may have gone on since, and now and then it has not looked well.
func (a *actor) hostsChoice(w world) (call, bool) {
	c := call{host: a.host, epoch: a.field.hosts[a.host].epoch.Load(), generation: w.generation}
	if a.oneIn(40) {
		c.epoch--
	}
	if a.oneIn(40) {
		c.generation--
	}
	if w.move.id != "" && !a.oneIn(4) {
		return a.moveOn(c, w)
	}
	own := slices.DeleteFunc(slices.Clone(w.holds), func(h hold) bool { return h.host != a.host && !a.oneIn(20) })
	switch {
	case len(own) > 0 && !a.oneIn(4):
		return a.use(c, pick(a, own)), true
	case w.deleting && a.oneIn(3):
		c.kind = forget
	case w.deleting:
		c.kind, c.from, c.to = setStatus, string(api.VolumeDeleting), string(api.VolumeAvailable)
	case len(w.holds) == 0 && a.oneIn(30):
		c.kind, c.from, c.to = setStatus, string(api.VolumeAvailable), string(api.VolumeDeleting)
	case len(w.holds) == 0 && a.oneIn(4):
		c.kind, c.id = migrate, uuid.NewString()
	default:
		c.kind, c.id, c.instance = reserve, uuid.NewString(), pick(a, a.field.instances[a.host])
	}
	return c, true
}

// use is what may be done next with an attachment.
func (a *actor) use(c call, h hold) call {
	next := map[api.AttachmentState][]api.AttachmentState{
		api.AttachmentReserved:  {api.AttachmentAttaching, api.AttachmentAttaching, ""},
		api.AttachmentAttaching: {api.AttachmentAttached, api.AttachmentAttached, api.AttachmentError},
		api.AttachmentAttached:  {api.AttachmentDetaching, api.AttachmentDetaching, api.AttachmentError, "", "migrate", "migrate"},
		api.AttachmentDetaching: {api.AttachmentAttached, "", ""},
		api.AttachmentError:     {api.AttachmentAttaching, api.AttachmentAttached, api.AttachmentDetaching, ""},
	}
	c.id, c.from = h.id, string(h.state)
	switch to := pick(a, next[h.state]); to {
	case "":
		c.kind, c.force = release, a.oneIn(3)
	case "migrate":
		c.kind, c.id, c.src, c.dst = migrate, uuid.NewString(), h.id, uuid.NewString()
	default:
		c.kind, c.to = step, string(to)
	}
	return c
}

// moveOn is what may be done next with a migration. Its state and its host are
// not of the volume; a host knows its own.
func (a *actor) moveOn(c call, w world) (call, bool) {
	c.kind, c.id = advance, w.move.id
	next := [][2]api.MigrationState{
		{api.MigrationStarting, api.MigrationCompleting},
		{api.MigrationStarting, api.MigrationCopied},
		{api.MigrationStarting, api.MigrationCancelled},
		{api.MigrationCopied, api.MigrationCompleting},
		{api.MigrationCopied, api.MigrationCancelled},
		{api.MigrationCopied, api.MigrationCompleted},
		{api.MigrationCompleting, api.MigrationCompleted},
		{api.MigrationCompleting, api.MigrationCompleted},
		{api.MigrationCompleting, api.MigrationCancelled},
	}
	to := pick(a, next)
	c.from, c.to = string(to[0]), string(to[1])
	return c, true
}

// operatorsChoice is what an operator may want.
func (a *actor) operatorsChoice(w world) (call, bool) {
	c := call{}
	switch n := a.random.IntN(100); {
	case n < 2:
		c.kind, c.host = fenceHost, a.random.IntN(hostCount)
	case n < 40:
		c.kind, c.to = retype, pick(a, []string{oneType, manyType})
	case n < 60 && w.move.id != "":
		c.kind, c.id, c.to = abandon, w.move.id, string(api.MigrationCancelled)
		if c.keepDst = a.oneIn(2); c.keepDst {
			c.to = string(api.MigrationCompleted)
		}
	case n < 80 && len(w.holds) > 0:
		c.kind, c.id = forceDelete, pick(a, w.holds).id
	default:
		return c, false
	}
	return c, true
}

// make makes a call, the same until it is answered, and records it. A host that
// is told that it was fenced may rejoin then.
func (a *actor) make(ctx context.Context, c call) error {
	called := time.Now()
	a.epoch = c.epoch
	key := opID()
	got, lost, err := insist(ctx, func(ctx context.Context) (answer, error) { return a.send(ctx, c, key) })
	var refused *api.Error
	switch {
	case err == nil:
	case !errors.As(err, &refused) || refused.Code == api.CodeInternal || refused.Code == api.CodeInvalidArgument:
		return fmt.Errorf("%+v: %w", c, err)
	default:
		// The epoch is looked at before it is looked up whether the call was made
		// before: one that was lost may have been done.
		got = answer{code: refused.Code, unknown: lost && refused.Code == api.CodeStaleEpoch}
	}
	a.add(called, c, got)
	if c.kind == rejoinHost && err == nil {
		a.field.hosts[a.host].epoch.Store(c.epoch)
	}
	if now, ok := newEpoch(refused); ok && c.kind != rejoinHost {
		return a.rejoin(ctx, now)
	}
	return nil
}

// rejoin brings the actor's host back, unless another part of it is about to.
func (a *actor) rejoin(ctx context.Context, epoch int64) error {
	h := a.field.hosts[a.host]
	if h.epoch.Load() >= epoch || !h.rejoining.TryLock() {
		return nil
	}
	defer h.rejoining.Unlock()
	return a.make(ctx, call{kind: rejoinHost, host: a.host, epoch: epoch})
}

// newEpoch is the epoch that a host has to rejoin in.
func newEpoch(e *api.Error) (int64, bool) {
	if e == nil || e.Code != api.CodeStaleEpoch {
		return 0, false
	}
	n, ok := e.Details["epoch"].(float64)
	return int64(n), ok
}

// send makes one attempt at a call.
func (a *actor) send(ctx context.Context, c call, key string) (answer, error) {
	switch c.kind {
	case reserve, step, release, forceDelete:
		return a.sendAttachment(ctx, c, key)
	case migrate, advance, abandon:
		return a.sendMigration(ctx, c, key)
	case fenceHost, rejoinHost:
		return a.sendHost(ctx, c, key)
	default:
		return a.sendVolume(ctx, c, key)
	}
}

func (a *actor) sendAttachment(ctx context.Context, c call, key string) (answer, error) {
	var (
		got api.Attachment
		err error
	)
	switch h := a.field.hosts[c.host]; c.kind {
	case reserve:
		got, err = a.registry.ReserveAttachment(ctx, key, api.AttachmentReserve{
			ID: c.id, VolumeID: c.volume, InstanceID: c.instance, Device: a.field.device(c.volume), Mode: api.ModeRW,
			Host: h.id, Epoch: c.epoch, Generation: c.generation, OpID: key,
		})
	case step:
		got, err = a.registry.TransitionAttachment(ctx, key, c.id, api.AttachmentTransition{
			From: []api.AttachmentState{api.AttachmentState(c.from)}, To: api.AttachmentState(c.to), Host: h.id, Epoch: c.epoch, OpID: key,
		})
	case release:
		got, err = a.registry.ReleaseAttachment(ctx, key, c.id, api.AttachmentRelease{Host: h.id, Epoch: c.epoch, OpID: key, Force: c.force})
	default:
		return answer{}, a.operator.DeleteAttachment(ctx, key, c.id)
	}
	return answer{state: string(got.State)}, err
}

// device is where instances have a volume.
func (f *field) device(volume string) string {
	return "vd" + string(rune('b'+slices.Index(f.volumes, volume)))
}

func (a *actor) sendMigration(ctx context.Context, c call, key string) (answer, error) {
	var (
		got api.Migration
		err error
	)
	switch c.kind {
	case migrate:
		got, err = a.registry.RegisterMigration(ctx, key, api.MigrationRegister{
			ID: c.id, VolumeID: c.volume, SrcAttachmentID: c.src, DstAttachmentID: c.dst, Host: a.field.hosts[c.host].id,
			Epoch: c.epoch, Generation: c.generation, Dst: placeOf(c.id), Method: "auto", OpID: key,
		})
	case advance:
		got, err = a.registry.TransitionMigration(ctx, key, c.id, api.MigrationTransition{
			From: []api.MigrationState{api.MigrationState(c.from)}, To: api.MigrationState(c.to), Host: a.field.hosts[c.host].id, Epoch: c.epoch, OpID: key, NotSwitched: true,
		})
	default:
		keep := map[bool]string{false: api.KeepSrc, true: api.KeepDst}[c.keepDst]
		got, err = a.operator.AbandonMigration(ctx, key, c.id, api.MigrationAbandon{Keep: keep, Reason: "the test says so", EvenIfCorrupt: c.keepDst})
	}
	return answer{state: string(got.State)}, err
}

func (a *actor) sendHost(ctx context.Context, c call, key string) (answer, error) {
	if c.kind == fenceHost {
		got, err := a.operator.FenceHost(ctx, key, a.field.hosts[c.host].id, api.HostFence{Evidence: "the test says so", EvenIfUp: true})
		return answer{epoch: got.Epoch}, err
	}
	got, err := a.registry.RejoinHost(ctx, a.field.hosts[c.host].id, api.HostRejoin{Epoch: c.epoch})
	return answer{epoch: got.Epoch}, err
}

func (a *actor) sendVolume(ctx context.Context, c call, key string) (answer, error) {
	var (
		got api.Volume
		err error
	)
	switch c.kind {
	case retype:
		got, err = a.operator.RetypeVolume(ctx, key, c.volume, api.VolumeRetype{Type: c.to})
	case setStatus:
		got, err = a.registry.TransitionVolume(ctx, key, c.volume, api.VolumeTransition{From: api.VolumeStatus(c.from), To: api.VolumeStatus(c.to)})
	default:
		return answer{}, a.registry.DeleteVolume(ctx, key, c.volume)
	}
	return answer{state: string(got.Status)}, err
}

// String names the kind with what it is about, for people.
func (c call) String() string {
	parts := []string{string(c.kind), "host", fmt.Sprint(c.host), "epoch", fmt.Sprint(c.epoch)}
	for _, p := range [][2]string{{"id", c.id}, {"instance", c.instance}, {"src", c.src}, {"dst", c.dst}, {"from", c.from}, {"to", c.to}} {
		if p[1] != "" {
			parts = append(parts, p[0], p[1])
		}
	}
	if c.generation != 0 {
		parts = append(parts, "generation", fmt.Sprint(c.generation))
	}
	return strings.Join(parts, " ")
}
