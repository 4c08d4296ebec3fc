// SPDX-License-Identifier: Apache-2.0

package httpjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// lineTimeout is how long a reader may take to read a line.
const lineTimeout = 30 * time.Second

// Stream is an answer of JSON documents, one per line, each sent at once.
type Stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// NewStream begins an NDJSON answer with status 200. It sends the header at once, so that the
// reader knows that it is connected.
func NewStream(w http.ResponseWriter) (*Stream, error) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	s := &Stream{w: w, control: http.NewResponseController(w)}
	if err := s.control.Flush(); err != nil {
		return nil, fmt.Errorf("%w: %w", errGone, err)
	}
	return s, nil
}

// errGone: the reader of a stream has disconnected, as most readers do.
var errGone = errors.New("the reader is gone")

// Send sends v as one line. An error means that the reader has disconnected. The handler should
// return the error, which is then not logged.
func (s *Stream) Send(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode line: %w", err)
	}
	if err := s.control.SetWriteDeadline(time.Now().Add(lineTimeout)); err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	if _, err := s.w.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	if err := s.control.Flush(); err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
}
