// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// Images are the images of volumes, and the directory of RAM files, on this host
// (image.Storage).
type Images interface {
	// Inspect reads size and kind of an image of a known format.
	Inspect(ctx context.Context, path string, format api.Format) (image.Info, error)
	// InUse says who holds the image, in words, or "" if nobody that can be seen on
	// this host does: a mount, a device mapper or loop device, swap.
	InUse(ctx context.Context, path string) (string, error)
	// Connect makes the image at path ready for a guest of this host: nothing that
	// was cached of it before is read again.
	Connect(ctx context.Context, path string) error
	// Disconnect brings what this host has in memory of an image to stable storage.
	Disconnect(ctx context.Context, path string) error
	// FreeBytes is how much a file in dir may still grow.
	FreeBytes(dir string) (int64, error)
}

// pauseInput is the input of the ops that put an instance to rest for a migration,
// and wake it.
type pauseInput struct {
	subject
	MigrationID string `json:"migration_id"`
	VolumeID    string `json:"volume_id"`
	VolumeName  string `json:"volume_name"`
	// Device is the disk of the instance that the volume is, Location where it is,
	// and is to be after a restore.
	Device   string       `json:"device"`
	Location api.Location `json:"location"`
	// Memory is the file that the instance's RAM is kept in.
	Memory string `json:"memory"`
	// Suspended: an op before this one has suspended and guarded it. What undoes a save
	// leaves it so.
	Suspended bool `json:"suspended,omitempty"`
}

// owner is whose guard it is that keeps the instance at rest.
func (in *pauseInput) owner() string { return GuardPause + in.MigrationID }

func (in *pauseInput) reason() string {
	return fmt.Sprintf("instance %s is saved while volume %s moves with all its guests paused; `volferryctl migration show %s` says how far it is",
		in.InstanceName, in.VolumeName, in.MigrationID)
}

// rest is what an instance was when it was put to rest: the output of the step that
// did it.
type rest struct {
	// State is what it was: running, paused or stopped. Empty: it was not put to rest.
	State hv.State `json:"state"`
}

// hadMemory says whether it had RAM to save.
func (r rest) hadMemory() bool { return r.State.Active() && r.State != "" }

// restOf is what a domain is before it is put to rest. One that an I/O error has
// stopped goes on afterwards, as it would if the error were mended.
func restOf(dom *hv.Domain) rest {
	if dom.State == hv.StatePaused && dom.PauseReason == hv.PauseIOError {
		return rest{hv.StateRunning}
	}
	return rest{dom.State}
}

// rested is what is known of the rest of an instance for a migration, by the
// journal: the zero rest if it was never put to rest, or not for good. One whose save
// was undone, but for waking it, is at rest.
func (g *Manager) rested(ctx context.Context, in *pauseInput) (rest, error) {
	var is rest
	asleep, err := g.machine.asleep(ctx, in)
	if err != nil {
		return is, err
	}
	err = g.pauseOps(ctx, in, func(st op.Status) error {
		saved := st.State == op.StateDone || (st.State == op.StateUndone && asleep)
		if data, ok := st.Outputs[stepNameSave]; ok && st.Op.Kind == kindSave && saved {
			return json.Unmarshal(data, &is)
		}
		return nil
	})
	return is, err
}

// suspended is what an instance was before it was suspended for a migration: the zero
// rest if it was not, or was let go on at once.
func (g *Manager) suspended(ctx context.Context, in *pauseInput) (is rest, err error) {
	err = g.pauseOps(ctx, in, func(st op.Status) error {
		if data, ok := st.Outputs[stepNameSuspend]; ok && st.Op.Kind == kindSuspend && st.State != op.StateUndone {
			return json.Unmarshal(data, &is)
		}
		return nil
	})
	return is, err
}

// before is what an instance was before the migration touched it. What was saved by an
// older version was not suspended first.
func (g *Manager) before(ctx context.Context, in *pauseInput) (rest, error) {
	is, err := g.suspended(ctx, in)
	if err != nil || is.State != "" {
		return is, err
	}
	return g.rested(ctx, in)
}

// asleep says whether the instance has no process, and its RAM is in the file.
func (m *machine) asleep(ctx context.Context, in *pauseInput) (bool, error) {
	there, err := memoryThere(in)
	if err != nil || !there {
		return false, err
	}
	dom, err := m.domain(ctx, in.InstanceID)
	return dom == nil || !dom.State.Active(), err
}

// awoken says whether it was asked to wake the instance again: no save for the same
// migration may follow then.
func (g *Manager) awoken(ctx context.Context, in *pauseInput) (bool, error) {
	yes := false
	err := g.pauseOps(ctx, in, func(st op.Status) error {
		yes = yes || pauseKinds[st.Op.Kind]
		return nil
	})
	return yes, err
}

// pauseOps calls yield with the ops of an instance for a migration, oldest first.
func (g *Manager) pauseOps(ctx context.Context, in *pauseInput, yield func(op.Status) error) error {
	ops, err := g.desk.Journal.Group(ctx, in.InstanceID)
	if err != nil {
		return journalError(err)
	}
	for _, o := range ops {
		if _, is := pauseKinds[o.Kind]; !is {
			continue
		}
		var of pauseInput
		if err := json.Unmarshal(o.Input, &of); err != nil {
			return fmt.Errorf("read op %s: %w", o.ID, err)
		}
		if of.MigrationID != in.MigrationID {
			continue
		}
		st, err := g.desk.Runner.Status(ctx, o.ID)
		if err != nil {
			return journalError(err)
		}
		if err := yield(st); err != nil {
			return fmt.Errorf("read op %s: %w", o.ID, err)
		}
	}
	return nil
}

func journalError(err error) error {
	return op.Retry(request.BusyDelay, api.Errorf(api.CodeJournalUnavailable, "cannot read the journal: %v", err))
}

// memoryBytes is how much of the save directory the RAM of a domain may take: all of
// it, and what QEMU writes of its devices.
func memoryBytes(dom *hv.Domain) int64 {
	if !dom.State.Active() {
		return 0
	}
	return dom.MemoryBytes + dom.MemoryBytes/10
}

// Memory says what it takes to put an instance of this host to rest.
func (g *Manager) Memory(ctx context.Context, instanceRef string) (api.PausedInstance, error) {
	m := g.machine
	inst, err := m.find(ctx, instanceRef)
	if err != nil {
		return api.PausedInstance{}, err
	}
	s, err := m.subjectOf(ctx, inst)
	if err != nil {
		return api.PausedInstance{}, err
	}
	dom, err := m.HV.Domain(ctx, inst.ID)
	if errors.Is(err, hv.ErrNotFound) {
		return api.PausedInstance{}, api.Errorf(api.CodeNotFound, "instance %s is not defined on this host", inst.Name)
	}
	if err != nil {
		return api.PausedInstance{}, api.Errorf(api.CodeHypervisorUnavailable, "cannot look at instance %s: %v", inst.Name, err)
	}
	free, err := m.Images.FreeBytes(m.saveDir)
	if err != nil {
		return api.PausedInstance{}, fmt.Errorf("look at the directory for saved memory: %w", err)
	}
	return api.PausedInstance{
		InstanceID: inst.ID, InstanceName: inst.Name, Host: s.HostName, State: StateOf(dom.State),
		MemoryBytes: memoryBytes(dom), FreeBytes: free,
	}, nil
}
