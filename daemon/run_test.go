// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
)

// Systemd holds the socket, so a request may arrive before the daemon has tried to connect to
// libvirt.
func TestARequestWaitsForTheFirstTryToConnectToLibvirt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ready, served := make(chan struct{}), make(chan struct{})
		h := after(ready, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(served) }))
		go h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/status", nil))
		synctest.Wait()
		select {
		case <-served:
			t.Error("it was served before")
		default:
		}
		close(ready)
		<-served
	})
}
