// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// madeIn is a pool of a cluster in which moves make their images.
const madeIn = "fast"

// newImage is the address of an image that is not there.
func (h *host) newImage(c *lab.Ceph) string {
	return c.URI(fmt.Sprintf("%s/%s-made-%d", madeIn, filepath.Base(h.Dir), h.number()))
}

// hasImages claims that these are the images that moves of this host have made, and that none has a
// temporary name.
func (h *host) hasImages(t *testing.T, c *lab.Ceph, want ...string) {
	t.Helper()
	out, err := c.RBD(t.Context(), "ls", madeIn)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, name := range strings.Fields(out) {
		if strings.HasPrefix(name, filepath.Base(h.Dir)+"-made-") || strings.HasPrefix(name, ".") {
			got = append(got, c.URI(madeIn+"/"+name))
		}
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("pool %s has the images %q, want %q", madeIn, got, want)
	}
}

// An RBD image that is not there is made by the move to it, and goes with its cancel, as a file
// does.
func TestCephAMoveMakesTheImageThatItGoesTo(t *testing.T) {
	requireCeph(t)
	c := ownCluster(t)
	h := cephHost(t, c)
	g := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	t.Run("cancelled", func(t *testing.T) {
		to := h.newImage(c)
		v := g.start(t, "vda", "--to-path", to)
		g.writes(t)
		v.copy(t)
		h.hasImages(t, c, to)
		v.cancel(t)
		h.hasImages(t, c)
		g.assertSettledAndGoOn(t)
	})
	t.Run("another image is in its place", func(t *testing.T) {
		to := h.newImage(c)
		v := g.start(t, "vda", "--to-path", to)
		spec := strings.TrimPrefix(to, c.URI(""))
		for _, args := range [][]string{{"rm", "--no-progress", spec}, {"create", "--size", fmt.Sprintf("%dB", volumeBytes), spec}} {
			if _, err := c.RBD(t.Context(), args...); err != nil {
				t.Fatal(err)
			}
		}
		h.fails(t, api.ExitOpFailed, api.CodeDstInUse, v.copyArgs()...)
		v.cancel(t)
		h.hasImages(t, c, to)
		if _, err := c.RBD(t.Context(), "rm", "--no-progress", spec); err != nil {
			t.Fatal(err)
		}
		g.assertSettledAndGoOn(t)
	})
	t.Run("the daemon dies", func(t *testing.T) {
		var to string
		x := g.trial(api.MigrationCompleted, "running", func(t *testing.T) []string {
			t.Helper()
			to = h.newImage(c)
			return []string{"volume", "migrate", g.volumeName("vda"), "--to-path", to, "--delete-source"}
		})
		ended := x.settled
		x.settled = func(t *testing.T, m api.Migration) {
			t.Helper()
			ended(t, m)
			h.hasImages(t, c, to)
			g.migrate(t, "vda", "--to-pool", "a")
			if _, err := c.RBD(t.Context(), "rm", "--no-progress", strings.TrimPrefix(to, c.URI(""))); err != nil {
				t.Fatal(err)
			}
		}
		making := x.way(t).where(func(p point) bool { return p.kind() == "migration_start" && p.step() == "create_destination" })
		x.strikeAt(t, making, h.daemonDies(nothingElse))
	})
	g.powerOff(t)
	g.assertSettled(t)
}
