// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// TestStorageAThinPoolThatFillsIsSeenByDoctor, before it is full and afterwards.
func TestStorageAThinPoolThatFillsIsSeenByDoctor(t *testing.T) {
	storageDevice(t, kinds[0])
	h := startHost(t)
	lvm := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	const poolBytes = 32 << 20
	lvm("lvcreate", "--yes", "--size", "32M", "--errorwhenfull", "y", "--thinpool", "small-pool", "vg")
	t.Cleanup(func() { lvm("lvremove", "--yes", "vg/small-pool") })
	lvm("lvcreate", "--yes", "--virtualsize", "64M", "--thinpool", "small-pool", "--name", "filling", "vg")
	filling, err := os.OpenFile("/dev/vg/filling", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer filling.Close()
	fill := func(bytes int64) error {
		if _, err := io.CopyN(filling, rand.NewChaCha8([32]byte{3}), bytes); err != nil {
			return err
		}
		return filling.Sync()
	}
	want := func(status string, words ...string) {
		t.Helper()
		for _, c := range h.checks(t) {
			if c.Name == "thin pool vg/small-pool" {
				if c.Status != status {
					t.Errorf("doctor has %+v, want %s", c, status)
				}
				mustContain(t, c.Message+" "+c.Advice, words...)
				return
			}
		}
		t.Errorf("doctor says nothing of vg/small-pool: %+v", h.checks(t))
	}
	want("ok", "data 0.0%")
	if err := fill(poolBytes / 8 * 7); err != nil {
		t.Fatal(err)
	}
	want("warn", "data 87.5%", "lvextend --size")
	if err := fill(poolBytes); err == nil {
		t.Fatal("the pool holds more than it has room for")
	}
	want("fail", "it has no room for data", "data 100.0%")
}

// checks are what doctor says, whatever its exit status.
func (h *host) checks(t *testing.T) []api.Check {
	t.Helper()
	out, err := h.Ctl(t.Context(), "doctor", "-o", "json")
	var checks []api.Check
	if doc := unwrap(t, out, "checks"); json.Unmarshal(doc, &checks) != nil || len(checks) == 0 {
		t.Fatalf("doctor says %s (%v)", out, err)
	}
	return checks
}
