// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
)

func TestStatusSaysAtWhichURLTheRegistryIs(t *testing.T) {
	s := New(Deps{})
	if got := s.status().endpoint(); got != "" {
		t.Errorf("one URL: %q", got)
	}
	s.Endpoints = func() []client.Endpoint {
		return []client.Endpoint{{URL: "https://a:7643", Err: api.Errorf(api.CodeRegistryUnavailable, "x")}, {URL: "https://b:7643", InUse: true}, {URL: "https://c:7643"}}
	}
	if got, want := s.status().endpoint(), " at https://b:7643; when last tried it was not at https://a:7643"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
