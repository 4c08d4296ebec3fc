// SPDX-License-Identifier: Apache-2.0

// Package target has the common parts of the connectors of targets. It records the volumes of each
// session with a target, so that the session ends with the last of them; like the sessions, the
// records are lost at a reboot. It also reads the identity and users of devices.
package target

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// StateDir is the directory of the records of all sessions.
const StateDir = "/run/volferry-connectors"

const (
	markPrefix  = "volume-"
	foreignName = "foreign"
)

// Marks are the recorded volumes of a session. From Take to Release this process has the session
// for itself.
type Marks struct {
	dir  string
	lock *os.File
}

// Take waits until no other connector works on the session with this name, and returns its marks.
// Kind is the connector's name.
func Take(stateDir, kind, session string) (*Marks, error) {
	sum := sha256.Sum256([]byte(session))
	m := &Marks{dir: filepath.Join(stateDir, kind, hex.EncodeToString(sum[:16]))}
	var err error
	m.lock, err = lock(m.dir, "lock")
	return m, err
}

// TakeCopy waits until no other copy to a volume runs, and then blocks other copies until the file
// is closed, also in processes that inherited it. Each volume has its own name.
func TakeCopy(stateDir, kind, name string) (*os.File, error) {
	return lock(filepath.Join(stateDir, kind), "copy-"+name)
}

func lock(dir, name string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("take the lock %s: %w", f.Name(), err), f.Close())
	}
	return f, nil
}

// Release ends the exclusive use of the session.
func (m *Marks) Release() { _ = m.lock.Close() }

// Add marks a volume before a session is made for it. A session that existed before its first mark
// belongs to another program, and is never ended.
func (m *Marks) Add(volume string, sessionIsThere bool) error {
	have, err := m.volumes()
	if err != nil {
		return err
	}
	if len(have) == 0 {
		err = m.setForeign(sessionIsThere)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(m.dir, markPrefix+volume), nil, 0o600)
}

// Holds reports whether the session is ours and serves this volume (holds), and whether it serves
// no other volume (last): then the session must end before the mark is removed.
func (m *Marks) Holds(volume string) (holds, last bool, err error) {
	have, err := m.volumes()
	if err != nil {
		return false, false, err
	}
	foreign, err := m.isForeign()
	holds = !foreign && slices.Contains(have, volume)
	return holds, holds && len(have) == 1, err
}

// Remove removes the mark of a volume.
func (m *Marks) Remove(volume string) error {
	return absentIsFine(os.Remove(filepath.Join(m.dir, markPrefix+volume)))
}

func (m *Marks) volumes() (names []string, err error) {
	entries, err := os.ReadDir(m.dir)
	for _, e := range entries {
		if name, found := strings.CutPrefix(e.Name(), markPrefix); found {
			names = append(names, name)
		}
	}
	return names, err
}

func (m *Marks) setForeign(is bool) error {
	path := filepath.Join(m.dir, foreignName)
	if is {
		return os.WriteFile(path, nil, 0o600)
	}
	return absentIsFine(os.Remove(path))
}

func (m *Marks) isForeign() (bool, error) {
	_, err := os.Stat(filepath.Join(m.dir, foreignName))
	return err == nil, absentIsFine(err)
}

func absentIsFine(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
