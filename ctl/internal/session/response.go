// SPDX-License-Identifier: Apache-2.0

package session

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	"github.com/volferry/volferry/internal/api"
)

// Response is the JSON document of an answer, {"schema_version":1,"<field>":…}. Values are
// unchanged: -o json also prints unknown fields.
type Response struct {
	Members map[string]json.RawMessage
	// Earlier means that another request's op made the change before.
	Earlier bool
}

// newResponse reads the client's result: a document with several fields, or the bare value of
// field, or of "op" for lasting work.
func newResponse(field string, value json.RawMessage) (Response, error) {
	var members map[string]json.RawMessage
	if len(value) > 0 && value[0] == '{' {
		if err := json.Unmarshal(value, &members); err != nil {
			return Response{}, fmt.Errorf("decode the answer: %w", err)
		}
	}
	if members["schema_version"] != nil {
		return Response{Members: members}, nil
	}
	if members["kind"] != nil {
		field = "op"
	}
	return Response{}.With(field, value), nil
}

// With returns a copy of r with another value of field.
func (r Response) With(field string, member json.RawMessage) Response {
	members := maps.Clone(r.Members)
	if members == nil {
		members = map[string]json.RawMessage{"schema_version": json.RawMessage(strconv.Itoa(api.SchemaVersion))}
	}
	members[field] = member
	r.Members = members
	return r
}

// doneBefore reports whether the answer's op is done and belongs to a request with another key.
func (r Response) doneBefore(key string) bool {
	var op api.Op
	return r.Decode("op", &op) == nil && op.ID != key && op.State == api.OpDone
}

// Has reports whether the answer has a value of field other than null.
func (r Response) Has(field string) bool {
	member, ok := r.Members[field]
	return ok && string(member) != "null"
}

// Decode reads the value of field. A missing field is an error.
func (r Response) Decode(field string, out any) error {
	if !r.Has(field) {
		return fmt.Errorf("the answer has no %q; is the other side another version?", field)
	}
	if err := json.Unmarshal(r.Members[field], out); err != nil {
		return fmt.Errorf("decode %s: %w", field, err)
	}
	return nil
}

// NameIn returns the name of the object under field, or fallback.
func (r Response) NameIn(field, fallback string) string {
	var named struct {
		Name string `json:"name"`
	}
	if r.Decode(field, &named) != nil || named.Name == "" {
		return fallback
	}
	return named.Name
}
