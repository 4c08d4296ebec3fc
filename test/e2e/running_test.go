// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

func TestRunningGuestKeepsEveryWriteWhateverTheFormats(t *testing.T) {
	h := startHost(t)
	a := h.fsPool(t, "a", "ext4", 400)
	h.fsPool(t, "b", "xfs", 400)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	for _, to := range []struct {
		pool   string
		format api.Format
	}{
		{"b", api.FormatRaw}, {"a", api.FormatQcow2}, {"b", api.FormatQcow2}, {"a", api.FormatRaw},
	} {
		from := g.volume(t, "vda").Location.Format
		t.Run(string(from)+" to "+string(to.format), func(t *testing.T) {
			v := g.start(t, "vda", "--to-pool", to.pool, "--to-format", string(to.format))
			g.writes(t)
			v.copy(t)
			v.complete(t)
			g.assertSettled(t)
			g.boot(t)
		})
	}
	g.assertSettled(t)
}
