// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/http"
	"time"
)

// writeTimeout is how long what was written at once may take to go.
const writeTimeout = time.Minute

// withWriteTimeout bounds how long a peer may take to read, and not how long a request
// lasts: one may wait for an event, or be a stream without end. The server takes
// the bound away after the request.
func withWriteTimeout(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(&boundedWriter{ResponseWriter: w, control: http.NewResponseController(w)}, r)
	})
}

// boundedWriter gives each write its own deadline. If the deadline cannot be set the
// connection is gone, which the write itself finds out.
type boundedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

func (w *boundedWriter) Write(p []byte) (int, error) {
	_ = w.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	return w.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *boundedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
