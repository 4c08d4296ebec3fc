// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/programs"
)

func TestTheDialerMayConnectToTheRegistryAndToListedServersAlone(t *testing.T) {
	servers := `nbd_servers = ["nbd.example:10809", "10.0.0.7:10809"]` + "\n"
	for text, want := range map[string]string{
		servers: "nbd.example:10809 10.0.0.7:10809",
		servers + `registry = "https://r.example:7643"`: "r.example:7643 nbd.example:10809 10.0.0.7:10809",
		"": "",
	} {
		got, err := programs.AddressesOutside([]string{"--config", writeConfig(t, text)})
		if err != nil || !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
	for _, bad := range []string{`["nbd.example"]`, `["NBD:1"]`, `["a:1", "a:1"]`, `["a:1/x"]`, `[""]`} {
		if got, err := programs.AddressesOutside([]string{"--config", writeConfig(t, "nbd_servers = "+bad)}); err == nil {
			t.Errorf("%s is taken: %q", bad, got)
		}
	}
}
