// SPDX-License-Identifier: Apache-2.0

package httpjson

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/volferry/volferry/internal/api"
)

var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

// OpenAPI returns the OpenAPI 3.1 document of the served routes.
func OpenAPI(title, version string, routes []Route) map[string]any {
	paths, types := map[string]map[string]any{}, schemas{}
	for _, r := range routes {
		if paths[r.Path] == nil {
			paths[r.Path] = map[string]any{}
		}
		paths[r.Path][strings.ToLower(r.Method)] = types.operation(r)
	}
	types["Document"], types["ErrorBody"], types["Error"] = documentSchema(), errorBodySchema(), errorSchema()
	return map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{
			"title":   title,
			"version": version,
			"license": map[string]any{"name": "Apache-2.0", "identifier": "Apache-2.0"},
		},
		"paths": paths,
		"components": map[string]any{
			"schemas":   types,
			"responses": map[string]any{"Error": content("What went wrong.", jsonType, map[string]any{"$ref": "#/components/schemas/ErrorBody"})},
		},
	}
}

// WriteOpenAPI answers with the OpenAPI document alone, not as a member of another document.
func WriteOpenAPI(w http.ResponseWriter, title, version string, routes []Route) error {
	body, err := json.Marshal(OpenAPI(title, version, routes))
	if err != nil {
		return fmt.Errorf("encode OpenAPI document: %w", err)
	}
	writeJSON(w, http.StatusOK, append(body, '\n'))
	return nil
}

const (
	jsonType  = "application/json"
	linesType = "application/x-ndjson"
)

func (s schemas) operation(r Route) map[string]any {
	parameters := []any{}
	for _, m := range pathParameter.FindAllStringSubmatch(r.Path, -1) {
		parameters = append(parameters, parameter(m[1], "path", true))
	}
	for _, name := range r.Query {
		parameters = append(parameters, parameter(name, "query", false))
	}
	if r.Access != Read {
		parameters = append(parameters, parameter(api.IdempotencyKeyHeader, "header", false))
	}
	answer := content("The answer.", jsonType, s.document(r.Out))
	if r.Lines != nil {
		answer = content("One document per line.", linesType, s.of(reflect.TypeOf(r.Lines)))
	}
	o := map[string]any{
		"summary":    r.Summary,
		"parameters": parameters,
		"responses": map[string]any{
			"2XX":     answer,
			"default": map[string]any{"$ref": "#/components/responses/Error"},
		},
		"x-access":      r.Access.String(),
		"x-host-access": r.Hosts.String(),
	}
	if r.In != nil {
		body := content("", jsonType, s.of(reflect.TypeOf(r.In)))
		body["required"] = needsBody(reflect.TypeOf(r.In))
		o["requestBody"] = body
	}
	return o
}

func parameter(name, in string, required bool) map[string]any {
	return map[string]any{"name": name, "in": in, "required": required, "schema": map[string]any{"type": "string"}}
}

func content(description, mediaType string, schema map[string]any) map[string]any {
	return map[string]any{
		"description": description,
		"content":     map[string]any{mediaType: map[string]any{"schema": schema}},
	}
}

func documentSchema() map[string]any {
	return map[string]any{
		"type":        "object",
		"description": "The answer under its noun, beside the version of its schema.",
		"required":    []string{"schema_version"},
		"properties":  map[string]any{"schema_version": map[string]any{"const": api.SchemaVersion}},
	}
}

func errorBodySchema() map[string]any {
	return map[string]any{
		"type":       "object",
		"required":   []string{"error"},
		"properties": map[string]any{"error": map[string]any{"$ref": "#/components/schemas/Error"}},
	}
}

func errorSchema() map[string]any {
	codes := api.Codes()
	slices.Sort(codes)
	return map[string]any{
		"type":     "object",
		"required": []string{"code", "message"},
		"properties": map[string]any{
			"code":    map[string]any{"enum": codes},
			"message": map[string]any{"type": "string"},
			"details": map[string]any{"type": "object"},
		},
	}
}
