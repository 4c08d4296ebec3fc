// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/http"
	"time"
)

// writeTimeout limits how long the data of one write may take to leave.
const writeTimeout = time.Minute

// withWriteTimeout bounds how long a peer may take to read, but not how long a request may last:
// some are streams. The server removes the deadline after the request.
func withWriteTimeout(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(&boundedWriter{ResponseWriter: w, control: http.NewResponseController(w)}, r)
	})
}

// boundedWriter sets a deadline for each write. If that is impossible, the connection is closed
// and the write fails.
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
