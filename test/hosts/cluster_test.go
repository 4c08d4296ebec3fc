// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

// leftToTestHosts skips a test that make test has no time for.
func leftToTestHosts(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: left to make test-hosts")
	}
}

// leftToTestLiveShared skips a test of a volume that moves while all its guests write: those take
// minutes, and what else runs on the machine has little of it meanwhile.
func leftToTestLiveShared(t *testing.T) {
	t.Helper()
	if os.Getenv("VOLFERRY_LIVE_SHARED") == "" {
		t.Skip("SKIPPED: left to make test-live-shared")
	}
}

const (
	// sharedPool and newSharedPool are pools that all hosts of a cluster see;
	// localPool and otherPool are of the same names everywhere, and other bytes.
	sharedPool    = "shared"
	newSharedPool = "new"
	localPool     = "local"
	otherPool     = "other"

	// volumeBytes is small, since guests under TCG are slow.
	volumeBytes = 32 << 20
)

// cluster is a registry and hosts of one test.
type cluster struct {
	*site.Cluster
	guests int
}

// startCluster starts a registry and hosts with these names, each with the pools.
// Nothing of them is left when the test ends.
func startCluster(t *testing.T, names ...string) *cluster {
	t.Helper()
	return startClusterOf(t, built(t), names...)
}

// built is the directory of the programs of this source tree.
func built(t *testing.T) string {
	t.Helper()
	root, err := site.Root()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(root, "bin")
	if _, err := os.Stat(filepath.Join(bin, "volferryd")); err != nil {
		t.Fatalf("run make build first: %v", err)
	}
	return bin
}

// startClusterOf is startCluster with the programs in the directory bin.
func startClusterOf(t *testing.T, bin string, names ...string) *cluster {
	t.Helper()
	lab.Require(t)
	dir := lab.TempDir(t)
	s, err := site.StartCluster(t.Context(), dir, bin, []string{sharedPool, newSharedPool}, names...)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{Cluster: s}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.Logs())
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if left, err := lab.Remains(dir); err != nil || len(left) > 0 {
			t.Errorf("after the cluster was closed: %v left, %v", left, err)
		}
	})
	for _, h := range c.Hosts {
		for _, name := range []string{sharedPool, newSharedPool} {
			c.pool(t, h, name, filepath.Join(c.Shared, "pool-"+name))
		}
		for _, name := range []string{localPool, otherPool} {
			c.pool(t, h, name, filepath.Join(h.Dir, "pool-"+name))
		}
		// So that the registry knows of them.
		ctl(t, h.Caller, "pool", "list")
	}
	return c
}

func (c *cluster) pool(t *testing.T, h *site.Host, name, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := h.Libvirtd.DirPool(t.Context(), name, dir); err != nil {
		t.Fatal(err)
	}
}

// ctl runs volferryctl, which must succeed, and returns what it printed.
func ctl(t *testing.T, at site.Caller, args ...string) string {
	t.Helper()
	out, err := at.Ctl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// get runs volferryctl -o json, which must succeed, and decodes what is under
// the noun.
func get[T any](t *testing.T, at site.Caller, noun string, args ...string) T {
	t.Helper()
	v, err := site.Get[T](t.Context(), at, noun, args...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// refuses runs volferryctl, which must be refused with this code.
func refuses(t *testing.T, at site.Caller, code api.Code, args ...string) {
	t.Helper()
	out, err := at.Ctl(t.Context(), append([]string{"-o", "json", "--progress", "none"}, args...)...)
	var failed *site.CtlError
	if !errors.As(err, &failed) {
		t.Fatalf("volferryctl %s: want code %s, got: %v %s", strings.Join(args, " "), code, err, out)
	}
	var body api.ErrorBody
	if err := json.Unmarshal([]byte(failed.Stderr), &body); err != nil || body.Error == nil {
		t.Fatalf("no error document on stderr: %v: %v", err, failed)
	}
	if body.Error.Code != code {
		t.Fatalf("want code %s: %v", code, failed)
	}
}

// eventually waits until cond is true, which something in progress will make it.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	expired := time.After(2 * time.Minute)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-expired:
			t.Fatalf("not in time: %s", what)
		}
	}
}
