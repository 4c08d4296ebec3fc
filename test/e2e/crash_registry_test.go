// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/site"
)

// The deaths of the registry at its own points: EVENT.before_commit, where nothing of
// a change is stored, and EVENT.after_commit, where it is and nobody was told.

func (h *host) registryPointLog() string { return filepath.Join(h.Dir, "registry-points") }

// restartRegistry puts another registry in the place of this one, with these
// variables in its environment. It can pass calls on to the host when it returns.
func (h *host) restartRegistry(t *testing.T, env ...string) {
	t.Helper()
	h.KillRegistry()
	if err := h.StartRegistry(t.Context(), env...); err != nil {
		t.Fatal(err)
	}
	// Until the registry is heard again the daemon says what it knew, which on a new host
	// may be of before there was a volume.
	var volumes []api.Volume
	eventually(t, "the daemon knows of a volume", func() bool {
		volumes = get[[]api.Volume](t, h, "volumes", "volume", "list")
		return len(volumes) > 0
	})
	eventually(t, "the host asks the registry for work", func() bool {
		_, err := h.RegistryCaller().Ctl(t.Context(), "volume", "which", volumes[0].ID)
		// One of an instance on the shelf may be at no host.
		failed := new(site.CtlError)
		return err == nil || errors.As(err, &failed) && failed.Exit != api.CodeHypervisorUnavailable.ExitStatus()
	})
}

// registryWay is way, with the registry's points.
func (x *trial) registryWay(t *testing.T) points {
	t.Helper()
	watch := blow{
		arm: func(*testing.T, point) {},
		ready: func(t *testing.T, _ point) {
			if err := os.RemoveAll(x.registryPointLog()); err != nil {
				t.Fatal(err)
			}
			x.restartRegistry(t, faultLog+"="+x.registryPointLog())
		},
	}
	return x.undisturbed(t, watch, x.registryPointLog())
}

// registryDies is the blow of a registry that ends at the point. The daemon goes on
// meanwhile.
func (h *host) registryDies() blow {
	return blow{
		arm:   func(*testing.T, point) {},
		ready: func(t *testing.T, p point) { h.restartRegistry(t, faultPoints+"="+string(p)+"=kill") },
		strike: func(t *testing.T, lost context.Context, p point) {
			if err := h.RegistryDied(lost); err != nil {
				t.Fatalf("the way does not lead past %s: %v", p, context.Cause(lost))
			}
			if err := h.StartRegistry(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// bothDie is registryDies with a daemon that is killed as well, and started again
// when the registry is back and along is done.
func (h *host) bothDie(along func(*testing.T)) blow {
	b := h.registryDies()
	strike := b.strike
	b.strike = func(t *testing.T, lost context.Context, p point) {
		strike(t, lost, p)
		h.KillDaemon()
		along(t)
		if err := h.StartDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return b
}
