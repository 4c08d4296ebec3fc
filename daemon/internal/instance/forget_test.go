// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

func TestAnInstanceIsForgottenOnlyOnItsVolumes(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, w *world)
		want  api.Code
		says  string
	}{
		"as it was left": {nil, "", ""},
		"a definition that was put back after a move": {func(t *testing.T, w *world) {
			must(t, w.nodes[0].Fake.SetConfigChain(t.Context(), web, "vda", []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: "/released.raw"}}))
		}, api.CodeChainChanged, "its disk vda is at /released.raw"},
		"registry and journal contradict each other": {func(_ *testing.T, w *world) {
			w.nodes[0].unrecorded = api.Errorf(api.CodeChainChanged, "the journal has it at /dst.raw")
		}, api.CodeChainChanged, "cannot forget instance web: the journal has it at /dst.raw"},
		"its domain is gone":      {func(t *testing.T, w *world) { must(t, w.nodes[0].Fake.UndefineDomain(t.Context(), web)) }, "", ""},
		"libvirt does not answer": {func(_ *testing.T, w *world) { w.nodes[0].SetAway(true) }, api.CodeHypervisorUnavailable, "--force"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, api.InstanceStopped)
				m, _ := startDaemon(t, w.nodes[0]).Now()
				if c.spoil != nil {
					c.spoil(t, w)
				}
				err := m.CheckForget(t.Context(), w.registry.inst)
				if api.CodeOf(err) != c.want || err != nil && !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v, want %q: %s", err, c.want, c.says)
				}
			})
		})
	}
}
