// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/atomicfile"
)

// savedState is the content of a State. It is on stable storage before it is used.
type savedState struct {
	// Epoch is the newest epoch that this host has taken on.
	Epoch int64 `json:"epoch"`
	// Mark is the registry's newest mark.
	Mark *api.RegistryMark `json:"mark,omitempty"`
	// Fence is set from the time when the host learned of its fence until it has come back.
	Fence *Fence `json:"fence,omitempty"`
	// Granted has the attachments that the registry has granted this host since the view was read.
	Granted []grant `json:"granted,omitempty"`
	// Lost has the disks that a fence took from this host, while a domain still names them.
	Lost []LostDisk `json:"lost,omitempty"`
}

// Fence is a host's record of its own fence. Epoch is the epoch to come back with.
type Fence struct {
	Epoch int64 `json:"epoch"`
}

// grant is an attachment that this host may connect.
type grant struct {
	api.Attachment
	// taken is the order within this process; 0 for an earlier process.
	taken int64
}

func (s savedState) clone() savedState {
	s.Granted, s.Lost = slices.Clone(s.Granted), slices.Clone(s.Lost)
	return s
}

// readJSON reads a file; a missing file leaves v unchanged.
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

// State is the registry's data that this host must not forget. Open it before any request to the
// registry, because requests carry the epoch. It is safe for concurrent use.
type State struct {
	dir string

	// keeping serialises the changes. Kept is the content of the file.
	keeping sync.Mutex
	kept    []byte

	mu  sync.Mutex
	now savedState
}

// OpenState reads an earlier process's state from a directory. An unreadable file is an error:
// without its epoch a fenced host could write.
func OpenState(dir string) (*State, error) {
	s := &State{dir: dir}
	if err := readJSON(s.path(), &s.now); err != nil {
		return nil, fmt.Errorf("read what the registry told this host: %w; restore %s from a backup, or move it away if this host holds no attachment", err, s.path())
	}
	kept, err := json.Marshal(s.now)
	s.kept = kept
	return s, err
}

// EverRegistered reports whether a registry has ever answered the host with its state in this
// directory. Before that no registry knows the host's id.
func EverRegistered(dir string) (bool, error) {
	s := &State{dir: dir}
	for _, path := range []string{s.path(), s.viewPath()} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return true, err
		}
	}
	return false, nil
}

func (s *State) path() string { return filepath.Join(s.dir, "uplink.json") }

// viewPath is the path of the stored view.
func (s *State) viewPath() string { return filepath.Join(s.dir, "registry-view.json") }

// Epoch returns the newest epoch that this host has taken on, 0 if there was none.
func (s *State) Epoch() int64 { return s.current().Epoch }

// RegistryID returns the id of the last registry of this host, "" if there was none.
func (s *State) RegistryID() string {
	if m := s.current().Mark; m != nil {
		return m.RegistryID
	}
	return ""
}

// fence returns a copy of this host's fence, nil if it is not fenced.
func (s *State) fence() *Fence {
	f := s.current().Fence
	if f == nil {
		return nil
	}
	known := *f
	return &known
}

func (s *State) current() savedState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// update changes the state, durably before any reader sees the change. If edit changes nothing that
// is stored, nothing is written.
func (s *State) update(edit func(*savedState)) error { return s.change(edit, false) }

// updateAnyway is update for a change that takes effect even if it cannot be stored. The error
// reports that; the next change stores it too.
func (s *State) updateAnyway(edit func(*savedState)) error { return s.change(edit, true) }

func (s *State) change(edit func(*savedState), anyway bool) error {
	s.keeping.Lock()
	defer s.keeping.Unlock()
	after := s.current().clone()
	edit(&after)
	err := s.keep(after)
	if err == nil || anyway {
		s.mu.Lock()
		s.now = after
		s.mu.Unlock()
	}
	if err != nil {
		return fmt.Errorf("keep what the registry told this host: %w", err)
	}
	return nil
}

func (s *State) keep(after savedState) error {
	data, err := json.Marshal(after)
	if err != nil || bytes.Equal(s.kept, data) {
		return err
	}
	if err := atomicfile.Write(s.path(), data, 0o600); err != nil {
		s.kept = nil // the file may have the old or the new content
		return err
	}
	s.kept = data
	return nil
}

// LostDisk is a disk of a domain on a volume that a fence took from this host.
type LostDisk struct {
	InstanceID   string `json:"instance_id"`
	InstanceName string `json:"instance_name"`
	Target       string `json:"target"`
	Path         string `json:"path"`
	VolumeID     string `json:"volume_id"`
	VolumeName   string `json:"volume_name"`
	AttachmentID string `json:"attachment_id"`
	// Unseen reports that the domain could not be read, so that the disk is assumed.
	Unseen bool `json:"unseen,omitempty"`
}

// reason returns the guard's text, for a person who starts the instance.
func (d LostDisk) reason() string {
	return fmt.Sprintf("disk %s is volume %s at %s, which was taken from this host when it was fenced; take the disk out (`%s`), or attach the volume here again once it is free",
		d.Target, d.VolumeName, d.Path, api.ShellLine("virsh", "detach-disk", "--config", "--", d.InstanceName, d.Target))
}
