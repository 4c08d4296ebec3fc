// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// memory is the content of a file of SaveMemory. The files are real, since callers check their
// directory and remove them.
type memory struct {
	Domain string
	Disks  []hv.Disk
	// Acked is the content that the restored guest expects on its disks.
	Acked  map[string]map[int64]uint64
	ByUser bool
}

const memoryMode = 0o600

// SaveMemory implements hv.Hypervisor.
func (f *Fake) SaveMemory(ctx context.Context, id, path string) error {
	return f.call(ctx, "SaveMemory", func() error {
		dom, err := f.find(id)
		switch {
		case err != nil:
			return err
		case !dom.State.Active():
			return hv.ErrNotActive
		case !dom.Persistent:
			return fmt.Errorf("%w: the domain is transient", hv.ErrUnsupported)
		case len(dom.jobs)+len(dom.backups) > 0:
			return fmt.Errorf("%w: domain has active block job", hv.ErrBusy)
		}
		saved := memory{Domain: id, Disks: dom.Live, Acked: make(map[string]map[int64]uint64), ByUser: dom.byUser}
		for i := range dom.Live {
			saved.Acked[dom.Live[i].Target] = dom.acked[dom.Live[i].Target]
		}
		if err := saved.write(path); err != nil {
			return err
		}
		f.kill(dom)
		f.lifecycle(dom, "stopped")
		return nil
	})
}

// SavingMemory implements hv.Hypervisor.
func (f *Fake) SavingMemory(ctx context.Context, id string) (saving bool, err error) {
	err = f.call(ctx, "SavingMemory", func() error {
		dom, err := f.find(id)
		if err == nil {
			saving = dom.State.Active() && dom.saving
		}
		return err
	})
	return saving, err
}

// SetSaving sets whether a SaveMemory of a domain is under way after the death of its caller.
func (f *Fake) SetSaving(id string, saving bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dom, err := f.find(id)
	if err == nil {
		dom.saving = saving
	}
	return err
}

func (m *memory) write(path string) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, memoryMode)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: %w", hv.ErrExists, err)
	}
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}

// SavedDisks implements hv.Hypervisor.
func (f *Fake) SavedDisks(ctx context.Context, id, path string) ([]hv.Disk, error) {
	var disks []hv.Disk
	err := f.call(ctx, "SavedDisks", func() error {
		saved, err := readMemory(id, path)
		if err == nil {
			disks = saved.Disks
		}
		return err
	})
	return disks, err
}

// RestoreMemory implements hv.Hypervisor.
func (f *Fake) RestoreMemory(ctx context.Context, id, path string, opts hv.RestoreOptions) error {
	return f.call(ctx, "RestoreMemory", func() error {
		dom, err := f.find(id)
		if err != nil {
			return err
		}
		if dom.State.Active() {
			return hv.ErrActive
		}
		saved, err := readMemory(id, path)
		if err != nil {
			return err
		}
		if err := saved.setChains(opts.Chains); err != nil {
			return err
		}
		if err := f.askHook(id, opts.StartToken); err != nil {
			return err
		}
		return f.restore(dom, saved, opts.Paused)
	})
}

func readMemory(id, path string) (*memory, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var saved memory
	if err := json.Unmarshal(text, &saved); err != nil {
		return nil, fmt.Errorf("%w: parse %s: %w", hv.ErrIncomplete, path, err)
	}
	if saved.Domain != id {
		return nil, fmt.Errorf("%s holds the memory of domain %s", path, saved.Domain)
	}
	return &saved, nil
}

func (m *memory) setChains(chains map[string][]hv.Image) error {
	for target, chain := range chains {
		disk := findDisk(m.Disks, target)
		if disk == nil {
			return fmt.Errorf("%w: disk %s in the saved domain", hv.ErrNotFound, target)
		}
		if err := checkChain(chain); err != nil {
			return err
		}
		disk.Chain, disk.Terminated = slices.Clone(chain), true
	}
	return nil
}

// restore runs the domain with the saved memory. AssertNoWriteLost detects a disk that no longer
// matches that memory.
func (f *Fake) restore(dom *domain, saved *memory, paused bool) error {
	if dom.State.Active() {
		return hv.ErrActive
	}
	if err := f.run(dom, saved.Disks); err != nil {
		return err
	}
	dom.Booted = false
	maps.Copy(dom.acked, saved.Acked)
	f.lifecycle(dom, "started")
	if saved.ByUser && !paused {
		f.violate("domain %s was restored running though a person had paused it", dom.Name)
	}
	dom.byUser = saved.ByUser
	f.pause(dom, paused, hv.PauseUser)
	return nil
}
