// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestTheCommandThatGivesTheMemoryOfAnInstanceUpRemovesThatFileAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's for saves")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	memory, beside := filepath.Join(dir, "web 1.save"), filepath.Join(dir, "web")
	for _, path := range []string{memory, beside} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := (&PauseInput{Memory: memory}).needsOperator(errors.New("no room"))
	commands := strings.Split(err.Error(), "`")
	i := slices.IndexFunc(commands, func(c string) bool { return strings.HasPrefix(c, "rm ") })
	if i < 0 {
		t.Fatalf("there is no such command in %v", err)
	}
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", commands[i]).CombinedOutput(); err != nil { //nolint:gosec // it is what is tried
		t.Fatalf("%s: %v: %s", commands[i], err, out)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "web" {
		t.Errorf("left are %v (%v)", left, err)
	}
}
