// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAFileThatStaysUnreadableIsReadAgainAndLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var broken error
		loads := 0
		w, err := newWatched("list", slog.New(slog.NewTextHandler(&log, nil)), func() (int, error) {
			loads++
			return loads, broken
		}, filepath.Join(t.TempDir(), "none"))
		if err != nil {
			t.Fatal(err)
		}
		broken = errors.New("it is a directory")
		w.tried = nil // as if the file had changed
		w.seen.Store(nil)
		const uses = 5
		for range uses {
			if got := *w.get(); got != 1 {
				t.Errorf("the value is that of load %d, want the first, which was the last good one", got)
			}
			<-time.After(retryLoad)
		}
		if loads != 1+uses {
			t.Errorf("it was loaded %d times, want %d", loads, 1+uses)
		}
		if n := strings.Count(log.String(), "cannot be read"); n != 1 {
			t.Errorf("it was logged %d times, want once:\n%s", n, &log)
		}
	})
}
