// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/crash"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

// volumeBytes is the size of the volumes: small, since the guests are slow.
const volumeBytes = 64 << 20

// host is a site with two pools in directories of one file system. It belongs to one
// test at a time. Tests on several hosts run at once: each waits for its guest most of
// the time.
type host struct {
	*site.Site

	poolA, poolB string          // the directories of the pools a and b
	made         int             // volumes and guests, for names and seeds
	paused       map[string]bool // the guests that a test has paused
	clones       map[string]bool // the paths of volumes that have kept their base images in a move
	away         time.Duration   // how long a program was away that a test killed, and only that program resumes a guest
}

// idleHosts are hosts that no test has just now, for tests that do nothing to the
// programs themselves. To start a host takes as long as some of them. TestMain closes
// those that are left.
var idleHosts struct {
	sync.Mutex
	hosts []*host
}

// sharedHost is a host with nothing in progress that other tests use, before and after.
func sharedHost(t *testing.T) *host {
	t.Helper()
	requireParallel(t)
	lab.NothingDenied(t)
	h := takeIdle()
	if h == nil {
		dir, err := os.MkdirTemp("", "vfe2e-") //nolint:usetesting // it outlives the test
		if err != nil {
			t.Fatal(err)
		}
		h = openHost(t, dir)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(h.Logs())
			if err := h.closeShared(); err != nil {
				t.Error(err)
			}
			return
		}
		if err := errors.Join(emptyDir(h.poolA), emptyDir(h.poolB)); err != nil {
			t.Error(err)
		}
		idleHosts.Lock()
		defer idleHosts.Unlock()
		idleHosts.hosts = append(idleHosts.hosts, h)
	})
	return h
}

// takeIdle is an idle host, which is the caller's from now on, or nil.
func takeIdle() *host {
	idleHosts.Lock()
	defer idleHosts.Unlock()
	last := len(idleHosts.hosts) - 1
	if last < 0 {
		return nil
	}
	h := idleHosts.hosts[last]
	idleHosts.hosts = idleHosts.hosts[:last]
	return h
}

// closeIdle ends the idle hosts.
func closeIdle() error {
	var errs []error
	for h := takeIdle(); h != nil; h = takeIdle() {
		errs = append(errs, h.closeShared())
	}
	return errors.Join(errs...)
}

// closeShared ends a shared host. Nothing of it is left.
func (h *host) closeShared() error {
	if err := h.Close(); err != nil {
		return err
	}
	left, err := lab.Remains(h.Dir)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("after the site was closed: %v left", left)
	}
	return errors.Join(err, os.RemoveAll(h.Dir))
}

// startHost starts a libvirtd, a registry and a daemon for this test alone.
// Nothing of them is left when it ends.
func startHost(t *testing.T) *host {
	t.Helper()
	requireParallel(t)
	return startHostIn(t, tempDirOf(t))
}

// requireParallel is the begin of a test with a real guest.
func requireParallel(t *testing.T) {
	t.Helper()
	lab.Require(t)
	t.Parallel()
	crash.LeftToAnotherSeed(t)
}

// tempDirOf is a directory for a host of this test alone. Nothing in it is in use when the
// test ends.
func tempDirOf(t *testing.T) string {
	t.Helper()
	dir := lab.TempDir(t)
	nothingRemains(t, dir)
	return dir
}

// startHostIn is startHost in a directory of the test.
func startHostIn(t *testing.T, dir string) *host {
	t.Helper()
	lab.NothingDenied(t)
	h := openHost(t, dir)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(h.Logs())
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// nothingRemains claims, when all that the test begins after this call has ended, that
// nothing of the directory is in use.
func nothingRemains(t *testing.T, dir string) {
	t.Helper()
	t.Cleanup(func() {
		if left, err := lab.Remains(dir); err != nil || len(left) > 0 {
			t.Errorf("after the site was closed: %v left, %v", left, err)
		}
	})
}

func openHost(t *testing.T, dir string) *host {
	t.Helper()
	s, err := site.Start(t.Context(), dir, programs(t))
	if err != nil {
		t.Fatal(err)
	}
	h := &host{Site: s, paused: map[string]bool{}, clones: map[string]bool{}}
	h.poolA, h.poolB = h.dirPool(t, "a"), h.dirPool(t, "b")
	return h
}

// programs is the directory of the programs that were built.
func programs(t *testing.T) string {
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

// sharedPools is the shared host, and the directories of its pools.
func sharedPools(t *testing.T) (h *host, a, b string) {
	t.Helper()
	h = sharedHost(t)
	return h, h.poolA, h.poolB
}

// number is another one each time.
func (h *host) number() int {
	h.made++
	return h.made
}

// ctl runs volferryctl, which must succeed, and returns what it printed.
func (h *host) ctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := h.Ctl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// doctorFails runs doctor, which must find a failure, and returns what it prints.
func (h *host) doctorFails(t *testing.T) string {
	t.Helper()
	var failed *site.CtlError
	if _, err := h.Ctl(t.Context(), "doctor"); !errors.As(err, &failed) || failed.Exit != api.ExitRefused {
		t.Fatalf("doctor = %v, want exit status %d", err, api.ExitRefused)
	}
	return failed.Stdout
}

// get runs volferryctl -o json, which must succeed, and decodes what is under
// the noun.
func get[T any](t *testing.T, h *host, noun string, args ...string) T {
	t.Helper()
	v, err := site.Get[T](t.Context(), h.Caller, noun, args...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// ofRegistry lists what the registry itself has of a noun.
func ofRegistry[T any](t *testing.T, h *host, noun string) []T {
	t.Helper()
	list, err := site.Get[[]T](t.Context(), h.RegistryCaller(), noun+"s", noun, "list")
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// fails runs volferryctl, which must exit with this status and name this code,
// and returns what it said.
func (h *host) fails(t *testing.T, exit int, code api.Code, args ...string) api.Error {
	t.Helper()
	_, err := h.Ctl(t.Context(), append([]string{"-o", "json", "--progress", "none"}, args...)...)
	if err == nil {
		t.Fatalf("volferryctl %s: want code %s, and it did", strings.Join(args, " "), code)
	}
	return mustHaveFailed(t, err, exit, code)
}

// mustHaveFailed claims that a volferryctl -o json exited with this status and
// named this code, and returns what it said.
func mustHaveFailed(t *testing.T, err error, exit int, code api.Code) api.Error {
	t.Helper()
	var failed *site.CtlError
	if !errors.As(err, &failed) {
		t.Fatalf("want code %s, got: %v", code, err)
	}
	var body api.ErrorBody
	if err := json.Unmarshal([]byte(failed.Stderr), &body); err != nil || body.Error == nil {
		t.Fatalf("no error document on stderr: %v: %v", err, failed)
	}
	if failed.Exit != exit || body.Error.Code != code {
		t.Fatalf("want exit status %d and code %s: %v", exit, code, failed)
	}
	return *body.Error
}

// refuses is fails for what is refused before anything is touched.
func (h *host) refuses(t *testing.T, code api.Code, args ...string) api.Error {
	t.Helper()
	return h.fails(t, code.ExitStatus(), code, args...)
}

// virsh runs virsh, which must succeed.
func (h *host) virsh(t *testing.T, args ...string) string {
	t.Helper()
	out, err := h.Libvirtd.Virsh(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// eventually waits until cond is true, which something in progress will make it.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	expired := time.After(lab.Limit(time.Minute))
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-expired:
			t.Fatalf("still not: %s", what)
		}
	}
}

// mustContain fails the test unless the text has all the words.
func mustContain(t *testing.T, text string, words ...string) {
	t.Helper()
	if i := slices.IndexFunc(words, func(w string) bool { return !strings.Contains(text, w) }); i >= 0 {
		t.Errorf("%q is not in: %s", words[i], text)
	}
}

// idOf is what --no-wait printed: the id of the migration.
func idOf(t *testing.T, out string) string {
	t.Helper()
	id := strings.TrimSpace(out)
	if id == "" || strings.ContainsAny(id, " \n") {
		t.Fatalf("no id: %q", out)
	}
	return id
}

// exists reports whether there is something at the path.
func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Stat(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return err == nil
}

// freeAddress is an address at which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := lab.FreeAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// logged says how many lines of the daemon's log have the words.
func (h *host) logged(t *testing.T, words string) int {
	t.Helper()
	text, err := os.ReadFile(h.Log())
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), words)
}
