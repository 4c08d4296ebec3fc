// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/sandbox"
	"github.com/volferry/volferry/internal/api"
)

type qemuUser struct {
	who    hv.ProcessUser
	access sandbox.Access
}

func (s Storage) user(who hv.ProcessUser) qemuUser { return qemuUser{who, s.Access} }

// ReachError reports a directory that a user may not traverse.
type ReachError struct {
	User hv.ProcessUser
	Dir  string
	Mode os.FileMode
}

func (e *ReachError) Error() string {
	return fmt.Sprintf("QEMU runs as %s here and may not pass through %s (mode %04o); give others the right to (chmod o+x %[2]s), or use another directory",
		UserName(e.User), e.Dir, e.Mode.Perm())
}

func (e *ReachError) refusal(what, path string) *api.Error {
	return api.Errorf(api.CodePermissionDenied, "cannot %s: QEMU would not get to %s: %v", what, path, e).With("directory", e.Dir)
}

const reachTimeout = 5 * time.Second

// Reach returns nil if a process of this user can reach the files in a directory, through links
// too, and a *ReachError if not. libvirt gives QEMU's user access to images (MayOpen), but not to
// directories.
func (s Storage) Reach(who hv.ProcessUser, dir string) error {
	if who.UID == 0 {
		return nil
	}
	return answered("QEMU gets to "+dir, func() error { return s.user(who).reach(dir) })
}

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

func (u qemuUser) reach(dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("look whether QEMU gets to %s: %w", dir, noImage(err))
	}
	// For each directory, the kernel checks the access of this user. Only it knows access lists,
	// and a server's treatment of root.
	at := "/"
	for _, part := range append(strings.Split(strings.Trim(real, "/"), "/"), "") {
		mode, err := u.pass(at)
		if errors.Is(err, unix.EACCES) {
			err = &ReachError{User: u.who, Dir: at, Mode: mode}
		}
		if err != nil {
			return fmt.Errorf("look whether QEMU gets to %s: %w", dir, err)
		}
		at = filepath.Join(at, part)
	}
	return nil
}

// pass returns nil if the user may traverse a directory. Otherwise it returns an error and the
// mode of the directory.
func (u qemuUser) pass(dir string) (os.FileMode, error) {
	f, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), reachTimeout)
	defer cancel()
	if err = u.access.MayPass(ctx, userOf(u.who), f); err == nil {
		return 0, nil
	}
	var st unix.Stat_t
	_ = unix.Fstat(int(f.Fd()), &st)
	return os.FileMode(st.Mode & 0o777), err
}
