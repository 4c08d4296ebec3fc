// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/volferry/volferry/internal/api"
)

func TestOneReportOfAHostIsInTheLineToTheWriterAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		begin := func(ctx context.Context, host string) func() {
			end, err := c.BeginReport(ctx, host)
			if err != nil {
				t.Fatal(err)
			}
			return end
		}
		end := begin(t.Context(), "a")
		begin(t.Context(), "b")()
		gone, cancel := context.WithCancel(t.Context())
		results := make(chan error, 2)
		wait := func(ctx context.Context) {
			_, err := c.BeginReport(ctx, "a")
			results <- err
		}
		go wait(gone)
		synctest.Wait()
		cancel()
		if err := <-results; err == nil {
			t.Error("a caller that went away got its turn")
		}
		go wait(t.Context())
		synctest.Wait()
		select {
		case err := <-results:
			t.Fatalf("the second did not wait: %v", err)
		default:
		}
		end()
		if err := <-results; err != nil {
			t.Error(err)
		}
	})
}

func TestAHostThatRunsWhatIsNotItsOwnIsNamedUntilItSaysOtherwise(t *testing.T) {
	c := New([]Row{{ID: "1", Name: "a"}, {ID: "2", Name: "b"}})
	c.SetForeign("2", []string{"web"})
	if other := c.SplitBrain("web", "1"); other != "b" {
		t.Errorf("web runs on %q as well, want b", other)
	}
	for _, own := range []string{"2", "b"} {
		if other := c.SplitBrain("web", own); other != "" {
			t.Errorf("of host %s web runs on %q as well", own, other)
		}
	}
	c.Put(Row{ID: "2", Name: "b", Fenced: true}, "")
	if other := c.SplitBrain("web", "1"); other != "" {
		t.Errorf("web runs on the fenced host %q", other)
	}
	c.Put(Row{ID: "2", Name: "b"}, "")
	c.SetForeign("2", nil)
	if other := c.SplitBrain("web", "1"); other != "" {
		t.Errorf("web runs on %q, which does not say so any more", other)
	}
}

func TestTheProgressOfAHostGoesWithIt(t *testing.T) {
	c := New([]Row{{ID: "1", Name: "a"}})
	c.SetProgress("1", map[string]api.Migration{"m": {ID: "m", BytesDone: 7}})
	if m, ok := c.Progress("m"); !ok || m.BytesDone != 7 {
		t.Errorf("progress = %+v, %t", m, ok)
	}
	c.Remove("1")
	if m, ok := c.Progress("m"); ok {
		t.Errorf("progress of a host that is gone: %+v", m)
	}
}
