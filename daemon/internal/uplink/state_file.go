// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/atomicfile"
)

// savedState is what the uplink must not forget, whatever dies. It is on stable
// storage before it is acted on.
type savedState struct {
	// Epoch is the newest that this host was told and has taken on.
	Epoch int64 `json:"epoch"`
	// Mark is the newest mark that the registry has shown.
	Mark *api.RegistryMark `json:"mark,omitempty"`
	// Fence is there from the moment in which the host learned that it was
	// fenced until it has come back.
	Fence *Fence `json:"fence,omitempty"`
	// Granted are attachments that the registry has granted this host since the
	// view was read.
	Granted []grant `json:"granted,omitempty"`
	// Lost are the disks that a fence took from this host, as long as a domain
	// still names them.
	Lost []LostDisk `json:"lost,omitempty"`
}

// Fence is what a host knows of its being fenced. Epoch is the one to come back
// with.
type Fence struct {
	Epoch int64 `json:"epoch"`
}

// grant is an attachment that this host may connect.
type grant struct {
	api.Attachment
	// taken is the order in this process; 0 from an earlier one.
	taken int64
}

func (s savedState) clone() savedState {
	s.Granted, s.Lost = slices.Clone(s.Granted), slices.Clone(s.Lost)
	return s
}

// files are where the uplink keeps what it knows.
type files struct{ state, view string }

// load reads what an earlier process has kept. What cannot be read is not done
// without: the epoch keeps a fenced host from writing, and the view says what it
// lost.
func (f files) load(m *savedState, v *View) error {
	if err := readJSON(f.state, m); err != nil {
		return fmt.Errorf("read what the registry told this host: %w; restore %s from a backup, or move it away if this host holds no attachment", err, f.state)
	}
	if err := readJSON(f.view, v); err != nil {
		return fmt.Errorf("read what the registry last said: %w; move %s away only if no instance of this host runs: it says which volumes they may have", err, f.view)
	}
	return nil
}

// readJSON reads a file; one that is not there leaves v as it is.
func readJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return atomicfile.Write(path, data, 0o600)
}

// update changes the saved state, durably before anybody can see it. If edit
// changes nothing that is kept, nothing is written.
func (u *Uplink) update(edit func(*savedState)) error { return u.change(edit, false) }

// updateAnyway is update for what must be acted on even if it cannot be kept. The
// error says that it was not, and the next change of the state keeps it too.
func (u *Uplink) updateAnyway(edit func(*savedState)) error { return u.change(edit, true) }

func (u *Uplink) change(edit func(*savedState), anyway bool) error {
	u.keeping.Lock()
	defer u.keeping.Unlock()
	after := u.current().clone()
	edit(&after)
	err := u.keep(after)
	if err == nil || anyway {
		u.mu.Lock()
		u.state = after
		u.mu.Unlock()
	}
	if err != nil {
		return fmt.Errorf("keep what the registry told this host: %w", err)
	}
	return nil
}

func (u *Uplink) keep(s savedState) error {
	data, err := json.Marshal(s)
	if err != nil || bytes.Equal(u.kept, data) {
		return err
	}
	if err := atomicfile.Write(u.files.state, data, 0o600); err != nil {
		u.kept = nil // either may be there
		return err
	}
	u.kept = data
	return nil
}

func (u *Uplink) current() savedState {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state
}
