// SPDX-License-Identifier: Apache-2.0

package hvtest_test

import (
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
)

func TestAGuestWhoseOwnConnectionsAreEndedIsNoticed(t *testing.T) {
	f := hvtest.New()
	export := hv.Image{Type: hv.SourceNetwork, Format: hvtest.Raw, Path: "nbd://127.0.0.1:10809/src"}
	must(t,
		f.CreateImage(export.Path, export.Format, size),
		f.Define(hv.Domain{ID: domain, Name: "guest", Config: []hv.Disk{
			{Target: "vda", Device: "disk", Chain: []hv.Image{export}, Terminated: true},
		}}),
		f.Start(domain),
		f.EndConnections(t.Context(), domain, "nbd://127.0.0.1:10809/another"),
	)
	f.AssertClean(t)
	must(t, f.EndConnections(t.Context(), domain, export.Path))
	probe := &violations{TB: t}
	f.AssertClean(probe)
	if !strings.Contains(probe.text, "were ended") {
		t.Error("not noticed")
	}
}
