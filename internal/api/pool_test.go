// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

func TestOneSharedPoolIsOneOnlyIfAllHostsHaveItAlike(t *testing.T) {
	pool := func(host, path string, shared, active bool) api.Pool {
		return api.Pool{Name: "nfs", Host: host, Path: path, Shared: shared, Active: active}
	}
	for name, tc := range map[string]struct {
		pools []api.Pool
		host  string // host of the result, "" for none
	}{
		"none":             {nil, ""},
		"alike":            {[]api.Pool{pool("a", "/n", true, true), pool("b", "/n", true, true)}, "a"},
		"one is inactive":  {[]api.Pool{pool("a", "/n", true, false), pool("b", "/n", true, true)}, "b"},
		"one is its own":   {[]api.Pool{pool("a", "/n", true, true), pool("b", "/n", false, true)}, ""},
		"at another mount": {[]api.Pool{pool("a", "/n", true, true), pool("b", "/m", true, true)}, ""},
	} {
		if p, ok := api.OneShared(tc.pools); ok != (tc.host != "") || p.Host != tc.host {
			t.Errorf("%s: %q, %v, want %q", name, p.Host, ok, tc.host)
		}
	}
}
