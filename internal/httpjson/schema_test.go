// SPDX-License-Identifier: Apache-2.0

package httpjson_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/httpjson"
)

type leaf struct {
	Name  string         `json:"name"`
	Why   *string        `json:"why"`
	Extra map[string]any `json:"extra,omitempty"`
}

type tree struct {
	At       time.Time       `json:"at"`
	Size     int64           `json:"size_bytes,omitempty"`
	Share    float64         `json:"share"`
	On       bool            `json:"on"`
	Leaves   []leaf          `json:"leaves"`
	Branches []tree          `json:"branches,omitempty"`
	Any      json.RawMessage `json:"any,omitempty"`
}

// A schema must match encoding/json: a document with every field has the properties, and a document
// without fields has the required ones.
func TestSchemaSaysWhatTheEncoderDoes(t *testing.T) {
	document := openAPI(t, httpjson.Route{
		Method: "POST", Path: "/v1/trees", Access: httpjson.Operate, In: tree{}, Out: []httpjson.Noun{{Name: "tree", Value: tree{}}, {Name: "leaves", Value: []leaf{}}},
	}, httpjson.Route{Method: "GET", Path: "/v1/trees/events", Access: httpjson.Read, Lines: leaf{}})
	schemas := at(t, document, "components", "schemas")
	want := map[string]any{
		"type": "object",
		"properties": map[string]any{
			"at":         map[string]any{"type": "string", "format": "date-time"},
			"size_bytes": map[string]any{"type": "integer", "format": "int64"},
			"share":      map[string]any{"type": "number"},
			"on":         map[string]any{"type": "boolean"},
			"leaves":     map[string]any{"type": "array", "items": map[string]any{"$ref": "#/components/schemas/leaf"}},
			"branches":   map[string]any{"type": "array", "items": map[string]any{"$ref": "#/components/schemas/tree"}},
			"any":        map[string]any{},
		},
		"required": []any{"at", "share", "on", "leaves"},
	}
	if diff := cmp.Diff(want, at(t, schemas, "tree")); diff != "" {
		t.Errorf("schema of tree (-want +got):\n%s", diff)
	}
	nullable := map[string]any{"anyOf": []any{map[string]any{"type": "string"}, map[string]any{"type": "null"}}}
	if diff := cmp.Diff(nullable, at(t, schemas, "leaf", "properties", "why")); diff != "" {
		t.Errorf("a pointer (-want +got):\n%s", diff)
	}
	post, get := at(t, document, "paths", "/v1/trees", "post"), at(t, document, "paths", "/v1/trees/events", "get")
	ref := func(name string) map[string]any { return map[string]any{"$ref": "#/components/schemas/" + name} }
	for what, c := range map[string]struct{ got, want any }{
		"body":      {at(t, post, "requestBody", "content", "application/json", "schema"), ref("tree")},
		"answer":    {at(t, post, "responses", "2XX", "content", "application/json", "schema", "properties", "tree"), ref("tree")},
		"list":      {at(t, post, "responses", "2XX", "content", "application/json", "schema", "properties", "leaves", "items"), ref("leaf")},
		"line":      {at(t, get, "responses", "2XX", "content", "application/x-ndjson", "schema"), ref("leaf")},
		"no body":   {get["requestBody"], nil},
		"component": {schemas["Error"] != nil && schemas["Document"] != nil, true},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

// The members of an embedded struct are members of the document. One document may allow more values
// for them than another.
func TestSchemaOfAnEmbeddedStruct(t *testing.T) {
	type Paint struct {
		Colour string `json:"colour" enum:"red,green"`
	}
	type strict struct {
		Paint
	}
	type lenient struct {
		Paint `schema:"extensible"`
	}
	schemas := at(t, openAPI(t, httpjson.Route{
		Method: "POST", Path: "/v1/trees", Access: httpjson.Operate, In: strict{}, Out: []httpjson.Noun{{Name: "tree", Value: lenient{}}},
	}), "components", "schemas")
	for name, want := range map[string]map[string]any{
		"strict":  {"type": "string", "enum": []any{"red", "green"}},
		"lenient": {"type": "string"},
	} {
		whole := map[string]any{"type": "object", "properties": map[string]any{"colour": want}, "required": []any{"colour"}}
		if diff := cmp.Diff(whole, schemas[name]); diff != "" {
			t.Errorf("schema of %s (-want +got):\n%s", name, diff)
		}
	}
	if schemas["Paint"] != nil {
		t.Error("the embedded struct is a document of its own")
	}
}

// openAPI returns the OpenAPI document of the routes, decoded.
func openAPI(t *testing.T, routes ...httpjson.Route) map[string]any {
	t.Helper()
	b, err := json.Marshal(httpjson.OpenAPI("t", "1", routes))
	if err != nil {
		t.Fatal(err)
	}
	var document map[string]any
	if err := json.Unmarshal(b, &document); err != nil {
		t.Fatal(err)
	}
	return document
}

// at returns an object inside a document.
func at(t *testing.T, from map[string]any, path ...string) map[string]any {
	t.Helper()
	for _, name := range path {
		next, ok := from[name].(map[string]any)
		if !ok {
			t.Fatalf("there is no object %s of %v", name, path)
		}
		from = next
	}
	return from
}
