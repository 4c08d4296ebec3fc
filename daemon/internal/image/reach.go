// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

// ReachError says which directory a user may not pass through.
type ReachError struct {
	User hv.ProcessUser
	Dir  string
	Mode os.FileMode
}

func (e *ReachError) Error() string {
	return fmt.Sprintf("QEMU runs as %s here and may not pass through %s (mode %04o); give others the right to (chmod o+x %[2]s), or use another directory",
		UserName(e.User), e.Dir, e.Mode.Perm())
}

// refusal is the error for whoever wanted to do something (what) with path.
func (e *ReachError) refusal(what, path string) *api.Error {
	return api.Errorf(api.CodePermissionDenied, "cannot %s: QEMU would not get to %s: %v", what, path, e).With("directory", e.Dir)
}

// reachTimeout bounds Reach and MayOpen on a filesystem that does not answer.
const reachTimeout = 5 * time.Second

// Reach returns nil if a process of this user can get to the files in a directory, which
// may be reached by links, and a *ReachError if not. MayOpen says whether the user may open
// an image there: libvirt gives images to QEMU's user, but not directories.
func (Storage) Reach(who hv.ProcessUser, dir string) error {
	if who.UID == 0 {
		return nil
	}
	return answered("QEMU gets to "+dir, func() error { return reach(who, dir) })
}

// answered is look, whether something is so, with a bound.
func answered(what string, look func() error) error {
	answer := make(chan error, 1)
	go func() { answer <- look() }()
	bound := time.NewTimer(reachTimeout)
	defer bound.Stop()
	select {
	case err := <-answer:
		return err
	case <-bound.C:
		return fmt.Errorf("look whether %s: %w", what, location.ErrNoAnswer)
	}
}

func reach(who hv.ProcessUser, dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("look whether QEMU gets to %s: %w", dir, noImage(err))
	}
	// The kernel is asked as that user, directory by directory: it knows of access
	// lists, and of what the server of a mount thinks of root.
	if err := asUser(who, func() error { return pass(who, real) }); err != nil {
		return fmt.Errorf("look whether QEMU gets to %s: %w", dir, err)
	}
	return nil
}

// pass walks down to a directory.
func pass(who hv.ProcessUser, dir string) error {
	at := "/"
	for _, part := range append(strings.Split(strings.Trim(dir, "/"), "/"), "") {
		var st unix.Stat_t
		err := unix.Lstat(strings.TrimSuffix(at, "/")+"/.", &st)
		if errors.Is(err, unix.EACCES) {
			blocked := &ReachError{User: who, Dir: at}
			if unix.Lstat(at, &st) == nil { // the directory that it is in was passed
				blocked.Mode = os.FileMode(st.Mode & 0o777)
			}
			return blocked
		}
		if err != nil {
			return &os.PathError{Op: "look into", Path: at, Err: err}
		}
		at = filepath.Join(at, part)
	}
	return nil
}
