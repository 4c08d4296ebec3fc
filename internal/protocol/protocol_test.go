// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/protocol"
)

func TestWhatIsAnnouncedIsReadAgain(t *testing.T) {
	h := http.Header{}
	protocol.Announce(h)
	if diff := cmp.Diff(protocol.Own(), protocol.AnnouncedIn(h)); diff != "" {
		t.Errorf("read (-announced +read):\n%s", diff)
	}
	protocol.Remove(h)
	if len(h) > 0 {
		t.Errorf("an announcement was left: %v", h)
	}
}

func TestWhoAnnouncesNothingSpeaksTheFirstProtocolAndHasNoFeature(t *testing.T) {
	for name, h := range map[string]http.Header{
		"nothing":  {},
		"nonsense": {"Volferry-Protocol": {"two"}, "Volferry-Features": {"pages"}},
		"below":    {"Volferry-Protocol": {"0"}, "Volferry-Version": {"v1"}},
	} {
		a := protocol.AnnouncedIn(h)
		if diff := cmp.Diff(protocol.Announcement{Protocol: 1}, a); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(protocol.Own().Features, a.LacksOfOurs()); diff != "" || a.IsNewer() {
			t.Errorf("%s: lacks (-want +got):\n%s newer: %v", name, diff, a.IsNewer())
		}
	}
}

// Terminals show version and features, which any caller can announce.
func TestNothingUnprintableOrEndlessIsRead(t *testing.T) {
	a := protocol.AnnouncedIn(http.Header{
		"Volferry-Protocol": {"7"}, "Volferry-Version": {"v1\x1b[2J"},
		"Volferry-Features": {"good, b\x1bad, BAD, " + strings.Repeat("x", 65) + ", ," + strings.Repeat("y,", 1000)},
	})
	if a.Version != "" || a.Protocol != 7 || len(a.Features) != 256 || a.Features[0] != "good" || a.Features[1] != "y" {
		t.Errorf("read %+v", a)
	}
	if !a.IsNewer() {
		t.Error("protocol 7 is not newer")
	}
}

type inner struct {
	Deep string `json:"deep,omitempty" needs:"depth"`
}

type body struct {
	Plain  string  `json:"plain"`
	Fresh  bool    `json:"fresh,omitempty" needs:"freshness"`
	Remark string  `json:"remark,omitempty" needs:"-"`
	Inner  *inner  `json:"inner,omitempty"`
	List   []inner `json:"list,omitempty"`
}

func TestARequestNeedsTheFeaturesOfTheFieldsThatItSets(t *testing.T) {
	for name, tc := range map[string]struct {
		body any
		want []string
	}{
		"no body":         {nil, nil},
		"nothing new":     {body{Plain: "x", Remark: "y"}, nil},
		"a field":         {body{Fresh: true}, []string{"freshness"}},
		"a pointer to it": {&body{Fresh: true}, []string{"freshness"}},
		"deeper":          {body{Inner: &inner{Deep: "x"}, Fresh: true}, []string{"depth", "freshness"}},
		"in a list, once": {body{List: []inner{{}, {Deep: "x"}, {Deep: "y"}}}, []string{"depth"}},
		"a type without":  {api.VolumeCreate{Name: "a", SizeBytes: 1}, nil},
	} {
		if diff := cmp.Diff(tc.want, protocol.Needs(tc.body)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestWhatIsNeededAndMissingIsRefusedByName(t *testing.T) {
	h := http.Header{}
	protocol.Require(h, nil)
	if len(h) > 0 || protocol.RequiredBy(h) != nil {
		t.Errorf("a request that needs nothing has %v", h)
	}
	protocol.Require(h, []string{protocol.Pages, "flight"})
	err := protocol.Own().Check("volferryd", protocol.RequiredBy(h))
	if api.CodeOf(err) != api.CodeStateForbidden || !strings.Contains(err.Error(), "lacks flight,") {
		t.Errorf("error = %v, want state_forbidden that names flight", err)
	}
	if diff := cmp.Diff(any([]string{"flight"}), api.AsError(err).Details["lacks"]); diff != "" {
		t.Errorf("details (-want +got):\n%s", diff)
	}
	if err := protocol.Own().Check("volferryd", []string{protocol.Pages}); err != nil {
		t.Errorf("what is there was refused: %v", err)
	}
}
