// SPDX-License-Identifier: Apache-2.0

package httpjson

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/volferry/volferry/internal/api"
)

// Write answers with the document {"schema_version":1, noun: v}. A v that is a
// list should not be nil: an empty list is [], not null.
func Write(w http.ResponseWriter, status int, noun string, v any) error {
	return WriteAll(w, status, Noun{Name: noun, Value: v})
}

// Noun is one member of a document that has several.
type Noun struct {
	Name  string
	Value any
}

// WriteAll answers with the document {"schema_version":1, noun: value, ...}.
func WriteAll(w http.ResponseWriter, status int, nouns ...Noun) error {
	// By hand, so that a reader meets the version before what it governs.
	body := fmt.Appendf(nil, "{\"schema_version\":%d", api.SchemaVersion)
	for _, n := range nouns {
		value, err := json.Marshal(n.Value)
		if err != nil {
			return fmt.Errorf("encode %s: %w", n.Name, err)
		}
		body = fmt.Appendf(body, ",%q:%s", n.Name, value)
	}
	writeJSON(w, status, append(body, '}', '\n'))
	return nil
}

// WriteError answers with an ErrorBody and the status of err's code.
func WriteError(w http.ResponseWriter, err error) {
	writeError(w, api.CodeOf(err).HTTPStatus(), err)
}

func writeError(w http.ResponseWriter, status int, err error) {
	body, encodeErr := json.Marshal(api.ErrorBody{Error: api.AsError(err)})
	if encodeErr != nil {
		// Only details can be at fault; the code and the message matter more.
		e := api.AsError(err)
		body, _ = json.Marshal(api.ErrorBody{Error: &api.Error{Code: e.Code, Message: e.Message}})
	}
	writeJSON(w, status, append(body, '\n'))
}

// writeJSON sends an answer. That the caller went away meanwhile is not ours
// to report.
func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
