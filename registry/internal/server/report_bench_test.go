// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/mtls"
	"github.com/volferry/volferry/registry/internal/storetest"
)

// BenchmarkReport measures an unchanged report, without HTTP and TLS.
func BenchmarkReport(b *testing.B) {
	s := newSite(b)
	whole := api.HostReport{ID: hostID, Name: "a", Version: "1", BootID: hostID, Epoch: 1, Pools: []api.Pool{{Name: "fast", Type: "dir", Path: "/fast", Active: true}}}
	for n := range 10 {
		whole.Instances = append(whole.Instances, api.InstanceReport{ID: storetest.ID(storetest.InstanceKind, n+1), State: api.InstanceRunning})
	}
	ctx := mtls.WithIdentity(b.Context(), *certificate(hostID, "a"))
	send := func(b *testing.B, body string) *httptest.ResponseRecorder {
		b.Helper()
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/hosts/"+hostID+"/report", strings.NewReader(body)))
		if w.Code != http.StatusOK {
			b.Fatalf("report = %d %s", w.Code, w.Body)
		}
		return w
	}
	var told struct{ Host api.Host }
	expect.OK(b, json.Unmarshal(send(b, encode(b, whole)).Body.Bytes(), &told))
	brief := api.HostReport{ID: hostID, Name: "a", Epoch: 1, Mark: told.Host.Mark, Digest: told.Host.ReportDigest}
	whole.Mark = told.Host.Mark
	for name, in := range map[string]api.HostReport{"whole": whole, "digest": brief} {
		b.Run(name, func(b *testing.B) {
			body := encode(b, in)
			b.ReportAllocs()
			for b.Loop() {
				send(b, body)
			}
		})
	}
}

func encode(b *testing.B, v any) string {
	b.Helper()
	text := expect.Value(json.Marshal(v))(b)
	return string(text)
}
