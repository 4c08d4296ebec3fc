// SPDX-License-Identifier: Apache-2.0

// Package target is what connectors of targets share. It keeps which volumes a session with a
// target was made for, so that it ends with the last of them; what it keeps is gone after a reboot,
// as sessions are. And it looks at devices: what they are, and who has them. It must not know how
// a session is made.
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

// StateDir is where connectors keep that.
const StateDir = "/run/volferry-connectors"

const (
	markPrefix  = "volume-"
	foreignName = "foreign"
)

// Marks are the volumes of a session. Whoever has them has the session to himself.
type Marks struct {
	dir  string
	lock *os.File
}

// Take waits until nobody else is at work on the session that these words name, and returns its
// marks. Kind is the name of the connector.
func Take(stateDir, kind, session string) (*Marks, error) {
	sum := sha256.Sum256([]byte(session))
	m := &Marks{dir: filepath.Join(stateDir, kind, hex.EncodeToString(sum[:16]))}
	var err error
	m.lock, err = lock(m.dir, "lock")
	return m, err
}

// TakeCopy waits until nobody copies to a volume, and has others wait until the file is closed,
// also in the processes that have inherited it. The name is that of no other volume.
func TakeCopy(stateDir, kind, name string) (*os.File, error) {
	return lock(filepath.Join(stateDir, kind), "copy-"+name)
}

// lock waits for a lock, which ends when the file is closed.
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

// Release lets others work on the session.
func (m *Marks) Release() { _ = m.lock.Close() }

// Add marks a volume, before the session is made for it: one that is there while nothing is
// marked is somebody else's, and is never ended.
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

// Holds reports whether the session is ours and is for this volume, and whether it is for no other
// one, so that it has to end before the mark goes (Remove).
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
