// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
)

// repeated is a change, and what happens between it and its repetition that would
// have it refused if it were asked for anew.
type repeated struct {
	change func(ctx context.Context, key string) (any, error)
	then   func() error
}

// A client whose answer was lost asks again, however much has happened since, and
// whichever process answers.
func TestTheSameRequestHasTheSameAnswerWhateverHappenedSince(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T, *cluster) repeated{
		"retype, then migrated":                        retypeThenMigrate,
		"retype, then another type and attached":       retypeThenAttach,
		"retype, then forgotten":                       retypeThenForget,
		"forced delete, then the host is back":         forceDeleteThenRejoin,
		"abandon, then the volume moves again":         abandonThenMigrate,
		"fence, then back":                             fenceThenRejoin,
		"reserve, then released":                       reserveThenRelease,
		"registered, then forgotten, and another type": registerThenForget,
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, "a", "b")
			r, key := prepare(t, c), opID()
			first, err := r.change(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.then(); err != nil {
				t.Fatal(err)
			}
			for _, restart := range []bool{false, true} {
				if restart {
					c.Kill()
					c.mustStart(t)
					c.mustIntroduce(t)
				}
				again, _, err := insist(t.Context(), func(ctx context.Context) (any, error) { return r.change(ctx, key) })
				if err != nil {
					t.Errorf("the same again is refused: %v", err)
				} else if diff := cmp.Diff(first, again); diff != "" {
					t.Errorf("answer (-first +again):\n%s", diff)
				}
			}
		})
	}
}

func (c *cluster) retyping(t *testing.T) (api.Volume, repeated) {
	t.Helper()
	v := c.volume(t, c.hosts[0], oneType)
	return v, repeated{change: func(ctx context.Context, key string) (any, error) {
		return c.operator.RetypeVolume(ctx, key, v.ID, api.VolumeRetype{Type: manyType})
	}}
}

// moving registers a migration of a volume that is attached to nothing.
func (c *cluster) moving(t *testing.T, v api.Volume, id string) error {
	t.Helper()
	h := c.hosts[0]
	return refusal(c.of(t, h).RegisterMigration(t.Context(), opID(), api.MigrationRegister{
		ID: id, VolumeID: v.ID, Host: h.id, Epoch: h.epoch.Load(), Generation: v.Generation, Dst: placeOf(id), Method: "auto", OpID: id,
	}))
}

func retypeThenMigrate(t *testing.T, c *cluster) repeated {
	v, r := c.retyping(t)
	r.then = func() error { return c.moving(t, v, uuid.NewString()) }
	return r
}

func retypeThenAttach(t *testing.T, c *cluster) repeated {
	v, r := c.retyping(t)
	instance := c.instance(t, c.hosts[0])
	r.then = func() error {
		if err := refusal(c.operator.RetypeVolume(t.Context(), opID(), v.ID, api.VolumeRetype{Type: oneType})); err != nil {
			return err
		}
		return attachOnce(t, c, c.hosts[0], v.ID, instance)
	}
	return r
}

func retypeThenForget(t *testing.T, c *cluster) repeated {
	v, r := c.retyping(t)
	r.then = func() error { return c.local.DeleteVolume(t.Context(), opID(), v.ID) }
	return r
}

func forceDeleteThenRejoin(t *testing.T, c *cluster) repeated {
	v, h, id := c.volume(t, c.hosts[0], oneType), c.hosts[0], uuid.NewString()
	if err := attachTo(t.Context(), c.of(t, h), h, v.ID, c.instance(t, h), id); err != nil {
		t.Fatal(err)
	}
	must(c.operator.FenceHost(t.Context(), opID(), h.id, api.HostFence{Evidence: "the test", EvenIfUp: true}))(t)
	return repeated{
		change: func(ctx context.Context, key string) (any, error) {
			return nil, c.operator.DeleteAttachment(ctx, key, id)
		},
		then: func() error { c.comeBack(t, h); return nil },
	}
}

func abandonThenMigrate(t *testing.T, c *cluster) repeated {
	v, h, id := c.volume(t, c.hosts[0], oneType), c.hosts[0], uuid.NewString()
	if err := c.moving(t, v, id); err != nil {
		t.Fatal(err)
	}
	must(c.operator.FenceHost(t.Context(), opID(), h.id, api.HostFence{Evidence: "the test", EvenIfUp: true}))(t)
	return repeated{
		change: func(ctx context.Context, key string) (any, error) {
			return c.operator.AbandonMigration(ctx, key, id, api.MigrationAbandon{Keep: api.KeepSrc, Reason: "the test"})
		},
		then: func() error {
			c.comeBack(t, h)
			return c.moving(t, v, uuid.NewString())
		},
	}
}

func fenceThenRejoin(t *testing.T, c *cluster) repeated {
	h := c.hosts[0]
	return repeated{
		change: func(ctx context.Context, key string) (any, error) {
			got, err := c.operator.FenceHost(ctx, key, h.id, api.HostFence{Evidence: "the test", EvenIfUp: true})
			return got, err
		},
		then: func() error { c.comeBack(t, h); return nil },
	}
}

func reserveThenRelease(t *testing.T, c *cluster) repeated {
	v, h, id := c.volume(t, c.hosts[0], oneType), c.hosts[0], uuid.NewString()
	r, in := c.of(t, h), reserveFor(h, v.ID, c.instance(t, h), id, 1)
	return repeated{
		change: func(ctx context.Context, key string) (any, error) { return r.ReserveAttachment(ctx, key, in) },
		then: func() error {
			return refusal(r.ReleaseAttachment(t.Context(), opID(), id, api.AttachmentRelease{Host: h.id, Epoch: h.epoch.Load(), OpID: "op"}))
		},
	}
}

func registerThenForget(t *testing.T, c *cluster) repeated {
	h, id := c.hosts[0], uuid.NewString()
	in := api.VolumeRegister{ID: id, Name: "v-" + id, Status: api.VolumeAvailable, Type: oneType, Host: h.id, Location: placeOf(id)}
	return repeated{
		change: func(ctx context.Context, key string) (any, error) { return c.local.RegisterVolume(ctx, key, in) },
		then: func() error {
			if err := c.local.DeleteVolume(t.Context(), opID(), id); err != nil {
				return err
			}
			return c.operator.DeleteType(t.Context(), opID(), oneType)
		},
	}
}
