// SPDX-License-Identifier: Apache-2.0

package power

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/test/site"
)

// mutations are mistakes that cost something when the power is cut, each with a layout on which it
// does.
var mutations = []struct {
	mistake, file, old, broken string
	layout                     layout
	move                       int // of moves
}{
	{
		"the directory of the definitions is not synced", "daemon/internal/libvirt/kept.go",
		"err := l.syncDirs(due)", "err := error(nil)",
		layout{"ext4", true},
		stoppedMove,
	},
}

func TestAMistakeThatLosesFlushedWritesIsFoundByPowerCuts(t *testing.T) {
	root, err := site.Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutations {
		t.Run(m.mistake, func(t *testing.T) {
			path := filepath.Join(root, m.file)
			source, err := os.ReadFile(path)
			must(t, err)
			if n := strings.Count(string(source), m.old); n != 1 {
				t.Fatalf("%s has the text %d times, want once: adapt the mutation", m.file, n)
			}
			dir := t.TempDir()
			broken, overlay, program := filepath.Join(dir, "broken.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "volferryd")
			replaced, err := json.Marshal(map[string]map[string]string{"Replace": {path: broken}})
			must(t, errors.Join(
				err,
				os.WriteFile(broken, []byte(strings.Replace(string(source), m.old, m.broken, 1)), 0o600),
				os.WriteFile(overlay, replaced, 0o600),
			))
			build := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", program, "./daemon")
			build.Dir = root
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			h := newHost(t, m.layout, program)
			r, points := h.record(t, moves[m.move])
			found := h.replay(t, r, points, replayed{most: 1})
			if len(found.wrong) == 0 {
				t.Fatalf("none of %d cuts finds it", found.cuts)
			}
			t.Logf("found after %d cuts: %s", found.cuts, found.wrong[0])
		})
	}
}
