// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/registry/internal/server"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// mutations returns the names of the routes that change something, sorted.
func mutations(routes []httpjson.Route, all map[string]request) (names []string) {
	for _, route := range routes {
		if name := route.Method + " " + route.Path; route.Method != http.MethodGet && all[name].path != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

type leaf struct {
	path  string
	value any
	set   func(any)
}

// leaves returns the leaves of a document, which set changes.
func leaves(path string, v any) (all []leaf) {
	visit := func(path string, v any, set func(any)) {
		switch v.(type) {
		case map[string]any, []any:
			all = append(all, leaves(path, v)...)
		default:
			all = append(all, leaf{path, v, set})
		}
	}
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			visit(path+"."+key, v[key], func(to any) { v[key] = to })
		}
	case []any:
		for i := range v {
			visit(fmt.Sprint(path, ".", i), v[i], func(to any) { v[i] = to })
		}
	}
	return all
}

// spoiled returns bad values to replace a good one.
func spoiled(good any) map[string]any {
	switch good.(type) {
	case string:
		return map[string]any{
			"a number": 7, "an object": map[string]any{}, "a list": []any{}, "control characters": "a\x00\x1b\nb", "10,000 characters": strings.Repeat("x", 10_000),
		}
	case float64:
		return map[string]any{"text": "1GiB", "negative": -1, "a fraction": 1.5, "too large": json.Number("1e30"), "a list": []any{}}
	case bool:
		return map[string]any{"text": "true", "a number": 1}
	}
	return nil
}

// Try every bad value in every place of every request: it must be refused and change nothing. For a
// call that is passed to a host only its form is checked here, because the host is away.
func TestBadInputInAnyPlaceOfAnyRequestIsRefusedAndChangesNothing(t *testing.T) {
	s := newSite(t)
	all := requests(s.fill(t))
	before := s.dump(t)
	tried := 0
	for _, name := range mutations(s.server.Routes(), all) {
		method, _, _ := strings.Cut(name, " ")
		req := all[name]
		refused := func(what, body string) {
			tried++
			w := s.do(t, method, req.path, body)
			e := expect.Refusal(w.Body.Bytes())
			if e == nil || w.Code < 400 || w.Code >= 500 && e.Code != api.CodeHypervisorUnavailable {
				t.Errorf("%s with %s: %d %.300s", name, what, w.Code, w.Body)
			}
			if malformed(what) && e != nil && e.Code != api.CodeInvalidArgument {
				t.Errorf("%s with %s: code = %s %s", name, what, e.Code, e.Message)
			}
		}
		if method != http.MethodDelete {
			body := req.body
			if body == "" {
				body = "{}"
			}
			refused("1 MiB + 1", body+strings.Repeat(" ", 1<<20+1-len(body))+"{}")
			refused("an unknown field", strings.Replace(strings.Replace(body, "{", `{"colour":"red",`, 1), ",}", "}", 1))
			refused("a list", "[]")
			refused("something after it", body+"{}")
			refused("half of it", body[:len(body)-1])
		}
		if req.body == "" {
			continue
		}
		var document any
		expect.OK(t, json.Unmarshal([]byte(req.body), &document))
		for _, l := range leaves("", document) {
			bad := spoiled(l.value)
			for _, what := range slices.Sorted(maps.Keys(bad)) {
				l.set(bad[what])
				body := expect.Value(json.Marshal(document))(t)
				refused(what+" in "+l.path, string(body))
			}
			l.set(l.value)
		}
	}
	if diff := cmp.Diff(before, s.dump(t)); diff != "" {
		t.Errorf("something changed (-before +after):\n%s", diff)
	}
	if tried < 500 {
		t.Errorf("%d bad requests are too few to be all", tried)
	}
}

// malformed reports whether a bad value has an impossible form.
func malformed(what string) bool {
	return !slices.ContainsFunc([]string{"control characters", "10,000 characters", "negative"}, func(w string) bool { return strings.HasPrefix(what, w) })
}

func TestBadHeadersAreRefused(t *testing.T) {
	s := newSite(t)
	s.fill(t)
	for name, as := range map[string]speaker{
		"long key":     {host: hostID, epoch: "1", key: strings.Repeat("k", 193)},
		"odd key":      {host: hostID, epoch: "1", key: "a b"},
		"epoch text":   {host: hostID, epoch: "first"},
		"epoch -1":     {host: hostID, epoch: "-1"},
		"epoch 2^64":   {host: hostID, epoch: "18446744073709551616"},
		"host unknown": {host: otherID[:35] + "9", epoch: "1"},
		"host odd":     {host: strings.Repeat("x", 10_000), epoch: "1"},
	} {
		w := s.speak(t, as, "PATCH", "/v1/volumes/data", `{"name":"other"}`)
		if w.Code < 400 || w.Code > 499 {
			t.Errorf("%s: %d %.200s", name, w.Code, w.Body)
		}
	}
}

// FuzzBodies sends any body, under any key, to every route that changes something.
func FuzzBodies(f *testing.F) {
	all := requests("")
	names := mutations(server.New(server.Config{Store: &workflow.Store{Store: new(store.Store)}}).Routes(), all)
	for i, name := range names {
		f.Add(uint8(i), []byte(all[name].body), "")
		f.Add(uint8(i), []byte(strings.Replace(all[name].body, `"`, `"\u0000`, 3)), "key")
	}
	var s *site
	calls, dir := 0, f.TempDir()
	f.Cleanup(func() {
		if s == nil {
			return
		}
		if err := s.close(); err != nil {
			f.Error(err)
		}
	})
	f.Fuzz(func(t *testing.T, route uint8, body []byte, key string) {
		// Successful calls fill the store, and remove the objects of other calls.
		if calls++; calls%500 == 1 {
			fresh := expect.Value(openSite(filepath.Join(dir, strconv.Itoa(calls))))(t)
			if s != nil {
				if err := s.close(); err != nil {
					t.Error(err)
				}
			}
			s = fresh
			all = requests(s.fill(t))
		}
		name := names[int(route)%len(names)]
		method, _, _ := strings.Cut(name, " ")
		before := s.dump(t)
		w := s.speak(t, speaker{key: key}, method, all[name].path, string(body))
		if w.Code < 400 {
			return
		}
		e := expect.Refusal(w.Body.Bytes())
		if e == nil {
			t.Fatalf("%s = %d %.300s, which is no error of the API", name, w.Code, w.Body)
		}
		if w.Code >= 500 && e.Code != api.CodeHypervisorUnavailable {
			t.Errorf("%s = %d %.300s", name, w.Code, w.Body)
		}
		if diff := cmp.Diff(before, s.dump(t)); diff != "" {
			t.Errorf("%s was refused (%s) and changed something (-before +after):\n%s", name, e.Message, diff)
		}
	})
}
