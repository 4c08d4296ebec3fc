// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// assertSrcAsStarted claims that nobody has written to the src of a completed move since the return of its start,
// whatever died meanwhile: the file says when it was written last, and the audit trail when the start was over. What is
// no file of its own does not say that.
func (h *host) assertSrcAsStarted(t *testing.T, m api.Migration) {
	t.Helper()
	if m.State != api.MigrationCompleted || api.IsNetwork(m.Src.Path) || m.Src.IsSlice() {
		return
	}
	src, err := os.Stat(fileOf(m.Src.Path))
	if errors.Is(err, fs.ErrNotExist) && m.DeleteSource || err == nil && !src.Mode().IsRegular() {
		return
	}
	if err != nil {
		t.Errorf("what the move has left: %v", err)
		return
	}
	events := get[[]api.Event](t, h, "events", "events", "--last", "200")
	i := slices.IndexFunc(events, func(e api.Event) bool {
		return e.Object == "migration/"+m.ID && e.To == string(api.MigrationStarted)
	})
	if i < 0 {
		t.Errorf("the audit trail has no start of migration %s", m.ID)
		return
	}
	if src.ModTime().After(events[i].At) {
		t.Errorf("%s was written at %s, and its migration was started at %s", m.Src.Path, src.ModTime(), events[i].At)
	}
}
