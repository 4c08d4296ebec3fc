// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"testing"
	"testing/synctest"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

// TestAStartConnectsWhatTheDefinitionNames: after a boot of the host there is no session.
func TestAStartConnectsWhatTheDefinitionNames(t *testing.T) {
	const lun = "/dev/vf-lun"
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, api.InstanceStopped)
		alpha := w.nodes[0]
		d := startDaemon(t, alpha)
		must(t, alpha.AddTarget(lun, testSize))
		must(t, alpha.Fake.ConnectDevice(t.Context(), lun))
		dom, err := alpha.Fake.Domain(t.Context(), web)
		must(t, err)
		must(t, alpha.Fake.SetConfigChain(t.Context(), web, dom.Config[0].Target, []hv.Image{{Type: hv.SourceBlock, Format: hvtest.Raw, Path: lun}}))
		w.registry.atts[0].Location.Path = lun
		must(t, alpha.Fake.DisconnectDevice(t.Context(), lun))
		must(t, askUntilEnd(t, d, "start"))
		if !alpha.Connected(lun) {
			t.Error("it runs, and its volume is not connected")
		}
	})
}
