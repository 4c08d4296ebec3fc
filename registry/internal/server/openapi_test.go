// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/registry/internal/store"
)

// contract is the registry's OpenAPI document in a validator. Documents may have only members that
// it names.
type contract struct{ compiler *jsonschema.Compiler }

const contractURL = "https://volferry.example/openapi.json"

func contractOf(t *testing.T, s *site) contract {
	t.Helper()
	document := expect.Value(jsonschema.UnmarshalJSON(s.do(t, "GET", "/v1/openapi.json", "").Body))(t)
	closed(document)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	expect.OK(t, c.AddResource(contractURL, document))
	return contract{c}
}

// closed makes every object of a document refuse unknown members.
func closed(v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			// An answer has Document's members and further ones.
			if inner, ok := inner.(map[string]any); ok && name != "Document" && inner["properties"] != nil {
				inner["unevaluatedProperties"] = false
			}
			closed(inner)
		}
	case []any:
		for _, inner := range v {
			closed(inner)
		}
	}
}

// check validates a JSON text with the schema at a place of the document.
func (c contract) check(t *testing.T, text string, place ...string) error {
	t.Helper()
	for i := range place {
		place[i] = url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(place[i]))
	}
	schema, err := c.compiler.Compile(contractURL + "#/" + strings.Join(place, "/"))
	if err != nil {
		t.Fatalf("compile the schema at %v: %v", place, err)
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return schema.Validate(v)
}

func (c contract) checkAnswer(t *testing.T, route httpjson.Route, status int, body string) {
	t.Helper()
	method := strings.ToLower(route.Method)
	if route.Path == "/v1/openapi.json" {
		return // OpenAPI itself describes it
	}
	var err error
	switch {
	case status >= 300:
		err = c.check(t, body, "components", "schemas", "ErrorBody")
	case route.Lines != nil:
		for _, line := range strings.Split(strings.TrimSpace(body), "\n") {
			if err == nil && line != "" {
				err = c.check(t, line, "paths", route.Path, method, "responses", "2XX", "content", "application/x-ndjson", "schema")
			}
		}
	default:
		err = c.check(t, body, "paths", route.Path, method, "responses", "2XX", "content", "application/json", "schema")
	}
	if err != nil {
		t.Errorf("%s %s = %d %s: %v", route.Method, route.Path, status, body, err)
	}
}

// A client generated from the OpenAPI document depends on it: check every request of the API and
// its answer.
func TestEveryDocumentIsAsTheOpenAPIDocumentSays(t *testing.T) {
	for _, route := range newSite(t).server.Routes() {
		name := route.Method + " " + route.Path
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			drain := s.fill(t)
			s.failed(t, drain)
			req, c := requests(drain)[name], contractOf(t, s)
			if req.body != "" && route.In != nil {
				if err := c.check(t, req.body, "paths", route.Path, strings.ToLower(route.Method), "requestBody", "content", "application/json", "schema"); err != nil {
					t.Errorf("the request %s: %v", req.body, err)
				}
			}
			if strings.HasSuffix(route.Path, "/events") || strings.HasSuffix(route.Path, "/tasks") {
				return // they wait
			}
			w := s.do(t, route.Method, req.path, req.body)
			c.checkAnswer(t, route, w.Code, w.Body.String())
		})
	}
}

// failed leaves errors in a migration and in a drain.
func (s *site) failed(t *testing.T, drain string) {
	t.Helper()
	why := api.Errorf(api.CodeNoSpace, "the pool slow is full").With("pool", "slow")
	in := api.MigrationTransition{From: []api.MigrationState{api.MigrationStarting}, To: api.MigrationNeedsOperator, Host: "a", Epoch: 1, OpID: "o", Error: why}
	body := expect.Value(json.Marshal(in))(t)
	w := s.do(t, "POST", "/v1/migrations/"+moveID+"/transition", string(body))
	if w.Code != http.StatusOK || !bytes.Contains(w.Body.Bytes(), []byte("is full")) {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	v := api.DrainVolume{VolumeID: volumeID, State: api.DrainVolumeSkipped, Error: why}
	expect.OK(t, s.store.Drains.SetVolume(t.Context(), store.Call{}, drain, v))
}

// Required members are required whatever their type: an empty object must not turn off a policy.
func TestEveryFieldThatTheDocumentRequiresIsRequired(t *testing.T) {
	s := newSite(t)
	all, before := requests(s.fill(t)), s.dump(t)
	document := openAPIOf(t, s)
	for _, route := range s.server.Routes() {
		req := all[route.Method+" "+route.Path]
		var body map[string]any
		if route.In == nil || json.Unmarshal([]byte(req.body), &body) != nil {
			continue
		}
		required := requiredOf(t, document, route)
		refused := func(what string, body any) {
			t.Helper()
			text := expect.Value(json.Marshal(body))(t)
			if w := s.do(t, route.Method, req.path, string(text)); w.Code != http.StatusBadRequest {
				t.Errorf("%s %s %s, %s: %d %s", route.Method, req.path, text, what, w.Code, w.Body)
			}
		}
		refused("null", nil)
		for name, value := range body {
			without := map[string]any{}
			for other, v := range body {
				if other != name {
					without[other] = v
				}
			}
			upper := map[string]any{strings.ToUpper(name): value}
			for other, v := range without {
				upper[other] = v
			}
			refused("in capitals: "+name, upper)
			if required[name] {
				refused("without "+name, without)
				without[name] = nil
				refused("null for "+name, without)
			}
		}
		for name, value := range body {
			member := expect.Value(json.Marshal(map[string]any{name: value}))(t)
			twice := strings.TrimSuffix(string(member), "}") + "," + strings.TrimPrefix(req.body, "{")
			if w := s.do(t, route.Method, req.path, twice); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "twice") {
				t.Errorf("%s %s %s: %d %s", route.Method, req.path, twice, w.Code, w.Body)
			}
		}
	}
	if diff := cmp.Diff(before, s.dump(t)); diff != "" {
		t.Errorf("something changed (-before +after):\n%s", diff)
	}
}

func openAPIOf(t *testing.T, s *site) (document map[string]any) {
	t.Helper()
	expect.OK(t, json.Unmarshal(s.do(t, "GET", "/v1/openapi.json", "").Body.Bytes(), &document))
	return document
}

// requiredOf returns the required members of a request's body, except nullable ones.
func requiredOf(t *testing.T, document map[string]any, route httpjson.Route) map[string]bool {
	t.Helper()
	var at any = document
	for _, name := range []string{"paths", route.Path, strings.ToLower(route.Method), "requestBody", "content", "application/json", "schema", "$ref"} {
		at = member(t, at, name)
	}
	schema := member(t, document, "components", "schemas", strings.TrimPrefix(fmt.Sprint(at), "#/components/schemas/"))
	required := map[string]bool{}
	all, _ := schema.(map[string]any)
	names, _ := all["required"].([]any)
	for _, name := range names {
		field, _ := member(t, schema, "properties", fmt.Sprint(name)).(map[string]any)
		required[fmt.Sprint(name)] = field["anyOf"] == nil && len(field) > 0
	}
	return required
}

// member returns a member of a document by its path.
func member(t *testing.T, v any, path ...string) any {
	t.Helper()
	for _, name := range path {
		object, ok := v.(map[string]any)
		if !ok || object[name] == nil {
			t.Fatalf("there is no %s of %v", name, path)
		}
		v = object[name]
	}
	return v
}
