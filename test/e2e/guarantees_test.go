// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

// The guarantees of ARCHITECTURE.md that are of a whole host, whatever a trial is about. A trial
// claims the others of its own guests.

// trialStart is what a host had when the request of a trial was about to be made.
type trialStart struct {
	*host

	at     time.Time
	images map[string]*os.File // of the volumes, by path: a file that is deleted or replaced is still seen
	files  []string            // in the pools
}

// startsTrial is called once all is as the request needs it.
func (h *host) startsTrial(t *testing.T) *trialStart {
	t.Helper()
	s := &trialStart{host: h, at: time.Now(), images: map[string]*os.File{}, files: filesLike(h.poolA+"/*", h.poolB+"/*")}
	for _, v := range get[[]api.Volume](t, h, "volumes", "volume", "list") {
		path := v.Location.Path
		// Of a test before on this host a volume is left, and no image.
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) && len(v.Attachments) == 0 {
			continue
		}
		if fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0); err == nil { // which is no use of it
			s.images[path] = os.NewFile(uintptr(fd), path)
			t.Cleanup(func() { _ = s.images[path].Close() })
		} else if medium.Of(path).Witnessed {
			t.Fatalf("open volume %s at %s: %v", v.Name, path, err)
		}
	}
	for _, m := range get[[]api.Migration](t, h, "migrations", "migration", "list") {
		s.assertFrozen(t, m)
	}
	return s
}

// assertGuarantees claims that no move wrote to its source, and that nothing is in progress or
// left. What is to be told to a registry that was away may come a little later. The audit trail is
// looked at when the site is closed.
func (s *trialStart) assertGuarantees(t *testing.T) {
	t.Helper()
	left := []string{}
	defer func() { t.Logf("left behind: %q", left) }()
	eventually(t, "nothing is left behind", func() bool {
		left = slices.Concat(s.held(t), s.leftFiles(t), s.leftovers(t, s.Overlays()))
		return len(left) == 0
	})
	for _, m := range get[[]api.Migration](t, s.host, "migrations", "migration", "list", "--all") {
		s.assertFrozen(t, m)
	}
}

// assertFrozen claims that nothing has written to the source of a migration since it was frozen,
// where that can be told: a cancel writes to it at its end, and guests write to it until a mirror
// or a pause is over.
func (s *trialStart) assertFrozen(t *testing.T, m api.Migration) {
	t.Helper()
	image := s.images[m.Src.Path]
	if image == nil || m.FinishedAt != nil && m.FinishedAt.Before(s.at) || onStorage() { // where the clock jumps
		return
	}
	var since time.Time
	exposed := time.Duration(m.ExposedSeconds * float64(time.Second))
	switch completed := m.State == api.MigrationCompleted; {
	case m.Method == methodOffline:
		since = *m.StartedAt
	case m.Method == "overlay" && exposed > 0 && completed:
		since = m.FinishedAt.Add(-exposed)
	case m.Method == "overlay" && exposed > 0 && !m.State.Final():
		since = time.Now().Add(-exposed)
	default:
		return
	}
	info, err := image.Stat()
	if err != nil {
		t.Fatal(err)
	}
	since = since.Add(time.Millisecond) // by which seconds are rounded
	if info.Mode().IsRegular() && info.ModTime().After(since) {
		t.Errorf("source %s was written at %s, and frozen since %s: %+v", m.Src.Path, info.ModTime(), since, m)
	}
}

// held are the operations of the host that are open, and what the registry keeps others off.
func (h *host) held(t *testing.T) (held []string) {
	t.Helper()
	for _, o := range get[[]api.Op](t, h, "ops", "op", "list") {
		held = append(held, fmt.Sprintf("operation %+v", o))
	}
	for _, i := range ofRegistry[api.Instance](t, h, "instance") {
		if i.Locked {
			held = append(held, fmt.Sprintf("lock of instance %+v", i))
		}
	}
	for _, v := range ofRegistry[api.Volume](t, h, "volume") {
		changing := func(a api.Attachment) bool { return a.State != api.AttachmentAttached }
		if v.MigrationID != "" || v.ResizeOpID != "" || slices.ContainsFunc(v.Attachments, changing) {
			held = append(held, fmt.Sprintf("lock of volume %+v", v))
		}
	}
	return held
}

// leftFiles are the memory of guests, cursors of copies, files that were not finished, guards of
// instances that may start, and what has come to the pools and is no volume.
func (s *trialStart) leftFiles(t *testing.T) []string {
	t.Helper()
	known := slices.Clone(s.files)
	for _, v := range ofRegistry[api.Volume](t, s.host, "volume") {
		known = append(append(known, v.Location.Path), basePaths(v.Location)...)
	}
	for _, i := range ofRegistry[api.Instance](t, s.host, "instance") {
		isRoot := func(b api.BlockDeviceMapping) bool { return api.IsRoot(b.BootIndex) && b.AttachmentID != nil }
		if i.State.OnShelf() || !slices.ContainsFunc(i.BlockDeviceMappings, isRoot) {
			known = append(known, filepath.Join(s.Guards(), i.ID))
		}
	}
	left := filesLike(s.poolA+"/*", s.poolB+"/*", s.Guards()+"/*", s.State()+"/saves/*", s.State()+"/cursors/*", s.State()+"/.*.tmp-*")
	return slices.DeleteFunc(left, func(path string) bool { return slices.Contains(known, path) })
}

func filesLike(patterns ...string) (files []string) {
	for _, pattern := range patterns {
		some, _ := filepath.Glob(pattern) // which is no bad one
		files = append(files, some...)
	}
	return files
}
