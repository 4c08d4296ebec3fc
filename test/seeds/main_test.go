// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSeedsThatPassedAreCountedAndThoseThatFailedAreAnError(t *testing.T) {
	const (
		passes = `{"Action":"pass","Package":"p","Test":"TestA/seed_1"}
{"Action":"pass","Package":"p","Test":"TestA/seed_1/part"}
{"Action":"pass","Package":"p","Test":"TestB/call_1"}
{"Action":"pass","Package":"p","Test":"TestA/seed_2"}
`
		fails = `{"Action":"output","Package":"p","Test":"TestA","Output":"    the same again: VOLFERRY_SEED=3\n"}
{"Action":"fail","Package":"p","Test":"TestA/seed_3"}
{"Action":"fail","Package":"p","Test":"TestA"}
`
	)
	for name, c := range map[string]struct {
		said    string
		atLeast int
		want    string
		err     string
	}{
		"enough":  {passes, 2, "2 seeds of p TestA", ""},
		"too few": {passes, 3, "2 seeds passed", "3 were asked for"},
		"failed":  {passes + fails, 1, "the same again: VOLFERRY_SEED=3", "have failed"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "said.json")
			if err := os.WriteFile(file, []byte(c.said), 0o600); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			err := run([]string{file}, c.atLeast, &out)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			if !strings.Contains(out.String(), c.want) {
				t.Errorf("it says %q, and lacks %q", out.String(), c.want)
			}
		})
	}
}
