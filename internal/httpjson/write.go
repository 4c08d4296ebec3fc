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

// Write answers with the document {"schema_version":1, noun: v}. If v is a list it should
// not be nil: an empty list is [], not null.
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
	d, _ := documents.Get().(*document) // nothing else is in it
	defer d.done()
	// By hand, so that a reader meets the version before what it governs.
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

// document is an answer in the making. They are used again: most answers are
// short, and there are many.
type document struct {
	text   bytes.Buffer
	values *json.Encoder // into text
}

// keepDocument is the size of an answer above which its memory is given back.
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
