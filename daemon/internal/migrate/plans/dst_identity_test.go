// SPDX-License-Identifier: Apache-2.0

package plans_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/internal/api"
)

// The copy, and the job of a mirror, check dst again before their first byte.
func TestNothingIsWrittenToADstThatSomebodyHasTakenSinceItWasMade(t *testing.T) {
	for name, c := range map[string]struct {
		takes func(t *testing.T, w *migratetest.World, path string)
		words string
	}{
		"a domain is defined on it": {func(t *testing.T, w *migratetest.World, path string) { w.DefineOn(t, path) }, "other"},
		"it is another file":        {func(t *testing.T, w *migratetest.World, path string) { w.Replace(t, path) }, "replaced"},
	} {
		for _, method := range []string{move.MethodOverlay, move.MethodMirror} {
			t.Run(name+", "+method, func(t *testing.T) {
				w := migratetest.NewWorld(t, hv.StateRunning)
				s := testSpec(method)
				must(t, w.CreateImage(dstPath, hvtest.Raw, testSize))
				fingerprint, err := w.Images.Fingerprint(t.Context(), dstPath)
				must(t, err)
				m := plans.NewEnv(w.Ports(), migratetest.FakeHistory{Note: move.DstNote{Ours: true, Print: fingerprint}}, nil, func(string) {}, slog.New(slog.DiscardHandler))
				if got, err := m.Seal.MayWriteDst(t.Context(), &s); err != nil || got != fingerprint {
					t.Fatalf("before that: %q, %v", got, err)
				}
				c.takes(t, w, dstPath)
				if method == move.MethodMirror {
					err = m.Seal.MayMirrorToDst(t.Context(), &s)
				} else {
					_, err = m.Seal.MayWriteDst(t.Context(), &s)
				}
				if api.CodeOf(err) != api.CodeDstInUse || !strings.Contains(err.Error(), c.words) {
					t.Errorf("got %v, want dst_in_use that says %q", err, c.words)
				}
			})
		}
	}
}
