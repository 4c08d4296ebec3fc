// SPDX-License-Identifier: Apache-2.0

package history

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
)

// shown returns a mark of timeline 2 that host a shows.
func shown(seq int64) Shown {
	return Shown{HostID: "1", HostName: "a", Mark: api.RegistryMark{RegistryID: "r", Timeline: 2, Seq: seq}}
}

func newHistory() *History {
	h := New(api.RegistryMark{RegistryID: "r", Timeline: 2}, NewKey(), nil)
	h.Advance(7, []byte{1})
	return h
}

func TestOnlyTheKeyOfTheRegistrySignsItsMarks(t *testing.T) {
	h := newHistory()
	if !h.HasSigned(h.Now()) {
		t.Error("the registry does not know its own mark")
	}
	for name, m := range map[string]api.RegistryMark{
		"unsigned":       shown(8).Mark,
		"another's":      newHistory().Now(),
		"a changed mark": func() api.RegistryMark { m := h.Now(); m.Seq++; return m }(),
	} {
		if h.HasSigned(m) {
			t.Errorf("%s: it passes as signed", name)
		}
	}
}

func TestWhatIsNewsOfAHost(t *testing.T) {
	h := newHistory()
	if !h.AddDoubt(shown(8)) || h.AddDoubt(shown(9)) || h.CheckDoubt("1") == nil || h.Restored() {
		t.Error("of two doubts about a host the first is news, and neither proves a restore")
	}
	if diff := cmp.Diff([]string{"a"}, h.Doubted()); diff != "" {
		t.Errorf("doubted (-want +got):\n%s", diff)
	}
	for _, tc := range []struct {
		seq           int64
		newest, first bool
	}{{9, true, true}, {8, false, false}, {10, true, false}} {
		if newest, first := h.AddProof(shown(tc.seq)); newest != tc.newest || first != tc.first {
			t.Errorf("event %d: newest %t, first %t", tc.seq, newest, first)
		}
	}
	if len(h.Doubted()) > 0 || !h.Restored() || h.NewestTimeline() != 2 || h.Reason() == "" {
		t.Error("a proof leaves its host in doubt, or proves nothing")
	}
}

func TestATimelineEndsWhatSpokeAgainstTheOneBefore(t *testing.T) {
	h := newHistory()
	h.AddProof(shown(9))
	h.AddDoubt(Shown{HostID: "2", HostName: "b", Mark: shown(9).Mark})
	h.BeginTimeline(3)
	if h.Restored() || h.Reason() != "" || len(h.Doubted()) > 0 || h.Now().Timeline != 3 || !h.HasSigned(h.Now()) {
		t.Errorf("after the timeline has begun: %+v, %q", h.Now(), h.Reason())
	}
	if newest, first := h.AddProof(shown(10)); newest || first || h.AddDoubt(shown(10)) || h.Restored() {
		t.Error("a mark of the timeline before counts")
	}
}
