// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/programs"
)

// TestCheckConfigHasConnectorsLookAtTheirPools, because only connectors know their options.
func TestCheckConfigHasConnectorsLookAtTheirPools(t *testing.T) {
	dir := fakeConnector(t)
	const broken = "#!/bin/sh\necho no answer\n"
	if err := os.WriteFile(filepath.Join(dir, "broken"), []byte(broken), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ pools, says, warns, refuses string }{
		"right options":     {`a = { connector = "fake", is = "good" }`, "the configuration is right\n", "", ""},
		"wrong options":     {`a = { connector = "fake", is = "bad" }`, "", "", "connector_pools: pool a: connector fake refuses its options: it is not good"},
		"options left out":  {`a = { connector = "fake" }`, "", "", "pool a: connector fake refuses its options"},
		"unknown connector": {`a = { connector = "nowhere" }`, "the configuration is right, but for the warnings\n", "warning: connector_pools: pool a cannot be used", ""},
		"broken connector":  {`a = { connector = "broken" }`, "the configuration is right, but for the warnings\n", "warning: connector_pools: pool a: connector broken cannot look at it", ""},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"check-config", "--config", writeConfig(t, "[connector_pools]\n"+tc.pools+"\n"), "--connector-dir", dir, "--state-dir", t.TempDir()}
			var out, said bytes.Buffer
			err := run(t.Context(), args, &out, &said)
			if (err != nil) != (tc.refuses != "") || err != nil && !strings.Contains(err.Error(), tc.refuses) {
				t.Errorf("the error is %v, want %q", err, tc.refuses)
			}
			if out.String() != tc.says || !strings.Contains(said.String(), tc.warns) || tc.warns == "" && said.Len() > 0 {
				t.Errorf("it says %q and warns %q, want %q and %q", &out, &said, tc.says, tc.warns)
			}
		})
	}
}

// TestAPoolDoesNotKeepADaemonFromStarting: the unit checks the configuration before the pools are
// available.
func TestAPoolDoesNotKeepADaemonFromStarting(t *testing.T) {
	t.Setenv(programs.EnvConnectors, "/run/volferry/connectors.sock")
	var out bytes.Buffer
	if err := run(t.Context(), append([]string{"check-config", "--state-dir", t.TempDir()}, fakePools(t)...), &out, t.Output()); err != nil {
		t.Errorf("%q, %v", &out, err)
	}
}
