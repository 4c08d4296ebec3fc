// SPDX-License-Identifier: Apache-2.0

package move

import (
	"errors"
	"sync"

	"github.com/volferry/volferry/internal/api"
)

// Fence has the newest epoch of this host that the registry has reported and, by migration, the
// epoch of the registry's last confirmation that this host has the migration. It is only in
// memory: after a restart the registry reports the epoch again.
type Fence struct {
	mu     sync.Mutex
	epoch  int64
	held   map[string]int64
	raised chan struct{} // closed and replaced with each new epoch
}

// Raise sets the registry's epoch of this host. It ignores a lower epoch.
func (f *Fence) Raise(epoch int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if epoch <= f.epoch {
		return
	}
	f.epoch = epoch
	if f.raised != nil {
		close(f.raised)
		f.raised = nil
	}
}

// Confirm records that the registry accepted a change of the migration in an epoch.
func (f *Fence) Confirm(s *Spec, epoch int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held == nil {
		f.held = map[string]int64{}
	}
	f.held[s.MigrationID] = epoch
}

// Behind reports whether the host was fenced since the registry last confirmed the migration.
// changed is closed at the next newer epoch.
func (f *Fence) Behind(s *Spec) (epoch int64, yes bool, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.raised == nil {
		f.raised = make(chan struct{})
	}
	return f.epoch, f.epoch > max(s.Epoch, f.held[s.MigrationID]), f.raised
}

// EpochIn returns the epoch in a stale_epoch error, or 0.
func EpochIn(err error) int64 {
	var refused *api.Error
	if !errors.As(err, &refused) {
		return 0
	}
	switch epoch := refused.Details["epoch"].(type) {
	case int64:
		return epoch
	case float64: // as JSON has it
		return int64(epoch)
	}
	return 0
}
