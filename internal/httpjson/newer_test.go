// SPDX-License-Identifier: Apache-2.0

package httpjson_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/protocol"
)

// post sends a body to a route for a thing, with header. It returns the decoded thing, nil if the
// handler was not called.
func post(t *testing.T, header map[string]string, body string) (*thing, *httptest.ResponseRecorder) {
	t.Helper()
	var taken *thing
	h := newHandler(everyone, httpjson.Route{Method: "POST", Path: "/v1/things", Handler: func(w http.ResponseWriter, r *http.Request) error {
		var v thing
		if err := httpjson.Decode(r, &v); err != nil {
			return err
		}
		taken = &v
		return httpjson.Write(w, http.StatusOK, "thing", v)
	}})
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/things", strings.NewReader(body))
	for name, value := range header {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return taken, w
}

var (
	newer = map[string]string{"Volferry-Protocol": strconv.Itoa(protocol.Number + 1)}
	same  = map[string]string{"Volferry-Protocol": strconv.Itoa(protocol.Number)}
)

func TestFieldsThatAreUnknownAreLeftUnreadOnlyWhereTheSenderIsNewer(t *testing.T) {
	const body = `{"name":"a","size_bytes":1,"fresh":{"er":[null,{"x":1}]}}`
	if v, w := post(t, newer, body); v == nil || v.Name != "a" || v.SizeBytes != 1 {
		t.Errorf("of a newer program: %v, %s", v, w.Body)
	}
	for name, header := range map[string]map[string]string{"a person": nil, "a program of this protocol": same} {
		v, w := post(t, header, body)
		if v != nil {
			t.Errorf("%s: a field that is unknown was taken", name)
		}
		wantError(t, w.Code, w.Body.String(), 400, api.CodeInvalidArgument, `unknown field "fresh"`)
	}
}

func TestANewerSenderIsHeldToAllElse(t *testing.T) {
	for body, want := range map[string]string{
		`{"name":"a","Size_Bytes":1,"size_bytes":2}`:  `unknown field "Size_Bytes"`,
		`{"name":"a","size_bytes":1,"size_bytes":2}`:  "twice",
		`{"name":"a","x":1}`:                          "lacks the field",
		`{"name":null,"size_bytes":1}`:                "cannot be a JSON null",
		`{"name":"a","size_bytes":"1","fresh":true}`:  "cannot be a JSON string",
		`{"name":"a","size_bytes":1,"fresh":true} {}`: "after its JSON document",
	} {
		v, w := post(t, newer, body)
		if v != nil {
			t.Errorf("%s was taken", body)
		}
		wantError(t, w.Code, w.Body.String(), 400, api.CodeInvalidArgument, want)
	}
}

func TestARequestThatNeedsWhatIsMissingNeverReachesItsHandler(t *testing.T) {
	header := map[string]string{"Volferry-Protocol": newer["Volferry-Protocol"], "Volferry-Needs": protocol.Pages + ", flight"}
	v, w := post(t, header, `{"name":"a","size_bytes":1}`)
	if v != nil {
		t.Error("its handler was called")
	}
	wantError(t, w.Code, w.Body.String(), 409, api.CodeStateForbidden, "lacks flight,")
	header["Volferry-Needs"] = protocol.Pages
	if v, w := post(t, header, `{"name":"a","size_bytes":1}`); v == nil {
		t.Errorf("a request that needs what is there was refused: %s", w.Body)
	}
}

func TestEveryAnswerSaysWhatThisProgramIs(t *testing.T) {
	_, w := post(t, nil, "nonsense")
	if a := protocol.AnnouncedIn(w.Header()); a.Protocol != protocol.Number || len(a.LacksOfOurs()) > 0 {
		t.Errorf("a refusal announces %+v", a)
	}
}
