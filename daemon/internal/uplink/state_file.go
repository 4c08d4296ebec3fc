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
	"github.com/volferry/volferry/internal/shell"
)

type savedState struct {
	// Epoch is the newest epoch that this host has adopted.
	Epoch int64             `json:"epoch"`
	Mark  *api.RegistryMark `json:"mark,omitempty"`
	// Fence is set from the time when the host detects its fence until it has come back.
	Fence *Fence `json:"fence,omitempty"`
	// Granted has the attachments granted since the view.
	Granted []grant `json:"granted,omitempty"`
	// Lost has the disks that a fence has taken from this host and that a domain still names.
	Lost []LostDisk `json:"lost,omitempty"`
}

// Fence is a host's record of its fence. The host will come back with this Epoch.
type Fence struct {
	Epoch int64 `json:"epoch"`
}

type grant struct {
	api.Attachment
	// taken is the grant's number in this process, or 0 for a grant of an earlier process.
	taken int64
}

func (s savedState) clone() savedState {
	s.Granted, s.Lost = slices.Clone(s.Granted), slices.Clone(s.Lost)
	return s
}

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
// registry, because requests have its epoch. It is safe for concurrent use.
type State struct {
	dir string

	// keeping serialises the changes. kept is the file's content.
	keeping sync.Mutex
	kept    []byte

	mu  sync.Mutex
	now savedState
}

// OpenState reads an earlier process's state from a directory. It refuses an unreadable file:
// without the epoch in it a fenced host could write.
func OpenState(dir string) (*State, error) {
	s := &State{dir: dir}
	if err := readJSON(s.path(), &s.now); err != nil {
		return nil, fmt.Errorf("read what the registry told this host: %w; restore %s from a backup, or move it away if this host holds no attachment", err, s.path())
	}
	kept, err := json.Marshal(s.now)
	s.kept = kept
	return s, err
}

// EverRegistered reports whether a registry has ever answered a daemon with its state in this
// directory. That registry knows the host's id.
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

func (s *State) viewPath() string { return filepath.Join(s.dir, "registry-view.json") }

// Epoch returns the newest epoch that this host has adopted, or 0.
func (s *State) Epoch() int64 { return s.current().Epoch }

// RegistryID returns the id of this host's last registry, or "".
func (s *State) RegistryID() string {
	if m := s.current().Mark; m != nil {
		return m.RegistryID
	}
	return ""
}

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

// update changes the state. The change is durable before any reader sees it. It writes nothing for
// an unchanged state.
func (s *State) update(edit func(*savedState)) error { return s.change(edit, false) }

// updateAnyway changes the state even if the change cannot be stored; the next change stores it.
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
		s.kept = nil // the file may have either content
		return err
	}
	s.kept = data
	return nil
}

// LostDisk is a domain's disk on a volume that a fence took from this host.
type LostDisk struct {
	InstanceID   string `json:"instance_id"`
	InstanceName string `json:"instance_name"`
	Target       string `json:"target"`
	Path         string `json:"path"`
	VolumeID     string `json:"volume_id"`
	VolumeName   string `json:"volume_name"`
	AttachmentID string `json:"attachment_id"`
	// Unseen is true if the domain cannot be read, and is assumed to have the disk.
	Unseen bool `json:"unseen,omitempty"`
}

func (d LostDisk) reason() string {
	return fmt.Sprintf("disk %s is volume %s at %s, which was taken from this host when it was fenced; take the disk out (`%s`), or attach the volume here again once it is free",
		d.Target, d.VolumeName, d.Path, shell.Line("virsh", "detach-disk", "--config", "--", d.InstanceName, d.Target))
}
