// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"context"
	"fmt"
	"path"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// AddTarget adds a volume to a target of the host. The volume is at this path while it is
// connected.
func (f *Fake) AddTarget(at string, sizeBytes int64) error {
	if err := f.CreateImage(at, Raw, sizeBytes); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.targets == nil {
		f.targets = map[string]*image{}
	}
	f.targets[at] = f.files[at]
	delete(f.files, at)
	return nil
}

// Connected reports whether the volume of a target is connected.
func (f *Fake) Connected(at string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.targets[at] != nil && f.files[at] == f.targets[at]
}

// Connectable implements hv.Hypervisor.
func (f *Fake) Connectable(ctx context.Context, at string) (bool, error) {
	is := false
	err := f.call(ctx, "Connectable", func() error {
		is = f.ofTarget(at)
		return nil
	})
	return is, err
}

func (f *Fake) ofTarget(at string) bool {
	for other := range f.targets {
		if path.Dir(other) == path.Dir(at) {
			return true
		}
	}
	return false
}

// ConnectDevice implements hv.Hypervisor.
func (f *Fake) ConnectDevice(ctx context.Context, at string) error {
	return f.call(ctx, "ConnectDevice", func() error {
		if f.targets[at] == nil && f.ofTarget(at) {
			return fmt.Errorf("%w: no target has %s", hv.ErrNotFound, at)
		}
		if img := f.targets[at]; img != nil {
			f.files[at] = img
		}
		return nil
	})
}

// DisconnectDevice implements hv.Hypervisor.
func (f *Fake) DisconnectDevice(ctx context.Context, at string) error {
	return f.call(ctx, "DisconnectDevice", func() error {
		if f.targets[at] == nil {
			return nil
		}
		if readers, writers := f.countHolders(at); readers+writers > 0 {
			return fmt.Errorf("%w: %s is open", hv.ErrInUse, at)
		}
		delete(f.files, at)
		return nil
	})
}
