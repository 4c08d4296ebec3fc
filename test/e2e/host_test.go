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
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

// volumeBytes is the size of the volumes: small, since the guests are slow.
const volumeBytes = 64 << 20

// host is a site that the sub-tests of one test share, each with guests of its
// own. Sub-tests run one after the other.
type host struct {
	*site.Site

	made int // volumes and guests, for names and seeds
}

// startHost starts libvirtd, registry and daemon for the test. Nothing of them
// is left when it ends.
func startHost(t *testing.T) *host {
	t.Helper()
	lab.Require(t)
	root, err := site.Root()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(root, "bin")
	if _, err := os.Stat(filepath.Join(bin, "volferryd")); err != nil {
		t.Fatalf("run make build first: %v", err)
	}
	dir := lab.TempDir(t)
	s, err := site.Start(t.Context(), dir, bin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.Logs())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if left, err := lab.Remains(dir); err != nil || len(left) > 0 {
			t.Errorf("after the site was closed: %v left, %v", left, err)
		}
	})
	return &host{Site: s}
}

// twoPools is a host with the pools a and b in directories of one file system.
func twoPools(t *testing.T) (h *host, a, b string) {
	t.Helper()
	h = startHost(t)
	return h, h.dirPool(t, "a"), h.dirPool(t, "b")
}

// number is another one each time.
func (h *host) number() int {
	h.made++
	return h.made
}

// dirPool makes a storage pool in a directory beside the others: on one file
// system with them, which need not be able to share extents.
func (h *host) dirPool(t *testing.T, name string) (dir string) {
	t.Helper()
	dir = filepath.Join(h.Libvirtd.Dir, "pool-"+name)
	if err := h.Libvirtd.DirPool(t.Context(), name, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// fsPool makes a storage pool on a file system of its own, ext4 or xfs. An xfs
// can share extents and is 300 MiB at least.
func (h *host) fsPool(t *testing.T, name, fstype string, sizeMiB int64) (dir string) {
	t.Helper()
	fs, err := lab.LoopFS(t.Context(), filepath.Join(h.Libvirtd.Dir, "pool-"+name), fstype, sizeMiB)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fs.Close(); err != nil {
			t.Error(err)
		}
	})
	return h.dirPool(t, name)
}

// device makes a block device of this size; its bytes are in dir.
func (h *host) device(t *testing.T, dir string, sizeBytes int64) *lab.Loop {
	t.Helper()
	file := filepath.Join(dir, fmt.Sprintf("device-%d", h.number()))
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, sizeBytes)); err != nil {
		t.Fatal(err)
	}
	loop, err := lab.LoopDevice(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := loop.Close(); err != nil {
			t.Error(err)
		}
	})
	return loop
}

// diskIn makes a filled volume in a directory, for a guest or for no guest.
func (h *host) diskIn(t *testing.T, dir string, format api.Format) lab.Disk {
	t.Helper()
	n := h.number()
	d := lab.Disk{
		Volume: lab.Volume{Path: filepath.Join(dir, fmt.Sprintf("vol-%d.%s", n, format)), Format: string(format)},
		Serial: fmt.Sprintf("serial-%d", n), Seed: uint64(n), Fill: lab.Fill{Seed: uint64(n), Percent: 30},
	}
	if err := lab.MakeVolume(t.Context(), d.Volume, volumeBytes, d.Fill); err != nil {
		t.Fatal(err)
	}
	return d
}

// diskOn makes a filled volume of a block device.
func (h *host) diskOn(t *testing.T, loop *lab.Loop) lab.Disk {
	t.Helper()
	n := h.number()
	d := lab.Disk{
		Volume: lab.Volume{Path: loop.Path, Format: "raw"},
		Serial: fmt.Sprintf("serial-%d", n), Seed: uint64(n), Fill: lab.Fill{Seed: uint64(n), Percent: 30},
	}
	if err := lab.FillVolume(loop.Path, d.Fill); err != nil {
		t.Fatal(err)
	}
	return d
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

// get runs volferryctl -o json, which must succeed, and decodes what is under
// the noun.
func get[T any](t *testing.T, h *host, noun string, args ...string) T {
	t.Helper()
	v, err := site.Get[T](t.Context(), h.Site, noun, args...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// fails runs volferryctl, which must exit with this status and name this code,
// and returns what it said.
func (h *host) fails(t *testing.T, exit int, code api.Code, args ...string) *api.Error {
	t.Helper()
	out, err := h.Ctl(t.Context(), append([]string{"-o", "json", "--progress", "none"}, args...)...)
	var failed *site.CtlError
	if !errors.As(err, &failed) {
		t.Fatalf("volferryctl %s: want code %s, got: %v %s", strings.Join(args, " "), code, err, out)
	}
	var body api.ErrorBody
	if err := json.Unmarshal([]byte(failed.Stderr), &body); err != nil || body.Error == nil {
		t.Fatalf("no error document on stderr: %v: %v", err, failed)
	}
	if failed.Exit != exit || body.Error.Code != code {
		t.Fatalf("want exit status %d and code %s: %v", exit, code, failed)
	}
	return body.Error
}

// refuses is fails for what is refused before anything is touched.
func (h *host) refuses(t *testing.T, code api.Code, args ...string) *api.Error {
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
	expired := time.After(time.Minute)
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

// freeBytes is how much room the file system of a directory has.
func freeBytes(t *testing.T, dir string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bfree) * st.Bsize
}

// exists says whether there is something at the path.
func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Stat(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return err == nil
}
