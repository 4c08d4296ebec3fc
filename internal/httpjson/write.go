// SPDX-License-Identifier: Apache-2.0

package httpjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"github.com/volferry/volferry/internal/api"
)

// Write answers with the document {"schema_version":1, noun: v}. A list v should not be nil: an
// empty list is [], not null.
func Write(w http.ResponseWriter, status int, noun string, v any) error {
	return WriteAll(w, status, Noun{Name: noun, Value: v})
}

// Noun is a named member of an answer's document.
type Noun struct {
	Name  string
	Value any
}

// WriteAll answers with the document {"schema_version":1, noun: value, ...}.
func WriteAll(w http.ResponseWriter, status int, nouns ...Noun) error {
	d, _ := documents.Get().(*document) // the pool has only documents
	defer d.done()
	// By hand, so that the version is the first member.
	d.text.WriteString(documentHead)
	for _, n := range nouns {
		d.text.WriteByte(',')
		d.text.Write(strconv.AppendQuote(d.text.AvailableBuffer(), n.Name))
		d.text.WriteByte(':')
		if err := d.values.Encode(n.Value); err != nil {
			return fmt.Errorf("encode %s: %w", n.Name, err)
		}
		d.text.Truncate(d.text.Len() - 1) // the encoder's newline
	}
	d.text.WriteString("}\n")
	writeJSON(w, status, d.text.Bytes())
	return nil
}

var documentHead = fmt.Sprintf(`{"schema_version":%d`, api.SchemaVersion)

// document is a reusable buffer for an answer.
type document struct {
	text   bytes.Buffer
	values *json.Encoder // into text
}

// keepDocument is the largest buffer that is reused.
const keepDocument = 64 << 10

var documents = sync.Pool{New: func() any {
	d := &document{}
	d.values = json.NewEncoder(&d.text)
	return d
}}

func (d *document) done() {
	if d.text.Cap() <= keepDocument {
		d.text.Reset()
		documents.Put(d)
	}
}

// WriteError answers with an ErrorBody and the status of err's code.
func WriteError(w http.ResponseWriter, err error) {
	writeError(w, api.CodeOf(err).HTTPStatus(), err)
}

func writeError(w http.ResponseWriter, status int, err error) {
	body, encodeErr := json.Marshal(api.ErrorBody{Error: api.AsError(err)})
	if encodeErr != nil {
		// Only the details can fail to encode; code and message matter more.
		e := api.AsError(err)
		body, _ = json.Marshal(api.ErrorBody{Error: &api.Error{Code: e.Code, Message: e.Message}})
	}
	writeJSON(w, status, append(body, '\n'))
}

// writeJSON ignores a failed write, since the caller has disconnected.
func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
