// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// unrecordedMove is a move of this host that is over, and that the registry does not know: its
// database was restored from a backup of before. The registry has the volume at one place, and the
// journal, with all that was written since, at another.
type unrecordedMove struct {
	h   *history
	vol api.Volume
}

// unrecorded returns the newest move of a volume on this host if it is an unrecorded one, else nil.
func (m *Manager) unrecorded(ctx context.Context, vol api.Volume, newest *history) (*unrecordedMove, error) {
	found := holder{vol: vol, newest: newest}
	if newest == nil || found.moving() || newest.spec.LedByRegistry() || found.overtaken() || sameImage(newest.chain()[0].Path, vol.Location.Path) {
		return nil, nil
	}
	mig, err := m.ports.Registry.Migration(ctx, newest.spec.MigrationID)
	switch {
	case api.CodeOf(err) == api.CodeNotFound:
	case err != nil:
		return nil, err
	case mig.State.Final() && mig.State != api.MigrationCompleted:
		return nil, nil // a person has abandoned it, and has said which copy is kept
	}
	return &unrecordedMove{newest, vol}, nil
}

// CheckRecorded refuses what depends on where the volumes of an instance are if the registry does
// not know a move of one of them that this host has ended. Without the registry nobody can tell.
func (m *Manager) CheckRecorded(ctx context.Context, instanceID string) error {
	move, err := m.unrecordedOf(ctx, instanceID)
	if request.Away(err) || errors.Is(err, context.DeadlineExceeded) || api.CodeOf(err) == api.CodeNotFound {
		return nil
	}
	if err != nil || move == nil {
		return err
	}
	dom, err := m.ports.HV.Domain(ctx, instanceID)
	if err != nil && !errors.Is(err, hv.ErrNotFound) {
		return steps.HVRefusal(request.Refused(err))
	}
	return api.Errorf(api.CodeChainChanged, "%s; %s", move.witnesses(dom), move.wayOut(dom)).With("migration_id", move.h.spec.MigrationID)
}

// unrecordedOf returns an unrecorded move of one of the volumes of an instance, nil if there is none.
func (m *Manager) unrecordedOf(ctx context.Context, instanceID string) (*unrecordedMove, error) {
	starts, err := m.starts(ctx)
	if err != nil || len(starts) == 0 {
		return nil, err
	}
	inst, err := m.ports.Registry.Instance(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	for _, slot := range inst.BlockDeviceMappings {
		if slot.VolumeID == nil {
			continue
		}
		newest, err := m.newestAmong(ctx, starts, *slot.VolumeID)
		if err != nil {
			return nil, err
		}
		if newest == nil {
			continue
		}
		vol, err := m.ports.Registry.Volume(ctx, *slot.VolumeID)
		if err != nil {
			return nil, err
		}
		if move, err := m.unrecorded(ctx, vol, newest); move != nil || err != nil {
			return move, err
		}
	}
	return nil, nil
}

// newestAmong returns the newest migration of a volume among those that these ops have begun, oldest
// first, nil if there is none.
func (m *Manager) newestAmong(ctx context.Context, starts []op.Op, volumeID string) (*history, error) {
	for i := len(starts) - 1; i >= 0; i-- {
		s, err := specOf(starts[i])
		if err != nil {
			return nil, err
		}
		if s.VolumeID == volumeID {
			return m.loadHistory(ctx, starts[i].Group)
		}
	}
	return nil, nil
}

// place is where the volume is by the journal.
func (u *unrecordedMove) place() string { return u.h.chain()[0].Path }

// disk returns the disk of the volume in a domain, of the definition or of the running guest.
func (u *unrecordedMove) disk(dom *hv.Domain, of func(*hv.Domain, string) *hv.Disk) *hv.Disk {
	if dom == nil {
		return nil
	}
	for i := range u.vol.Attachments {
		if a := &u.vol.Attachments[i]; a.InstanceID == dom.ID {
			return of(dom, a.Device)
		}
	}
	return nil
}

// witnesses say each what it has. The running guest is named only if there is one.
func (u *unrecordedMove) witnesses(dom *hv.Domain) string {
	s := &u.h.spec
	says := []string{
		fmt.Sprintf("the registry has volume %s at %s", u.vol.Name, u.vol.Location.Path),
		fmt.Sprintf("the journal of this host has it at %s since migration %s, which the registry does not know (it was restored from a backup of before, perhaps)", u.place(), s.MigrationID),
	}
	if d := u.disk(dom, (*hv.Domain).ConfigDisk); d != nil && len(d.Chain) > 0 {
		says = append(says, fmt.Sprintf("the definition of instance %s names %s", dom.Name, d.Chain[0].Path))
	}
	if d := u.disk(dom, (*hv.Domain).LiveDisk); d != nil && len(d.Chain) > 0 {
		says = append(says, "its guest runs on "+d.Chain[0].Path)
	}
	return strings.Join(says, "; ")
}

// wayOut is what an operator does: the volume becomes one where its definition has it.
func (u *unrecordedMove) wayOut(dom *hv.Domain) string {
	instance := "INSTANCE"
	if dom != nil {
		instance = dom.Name
	}
	first := ""
	if d := u.disk(dom, (*hv.Domain).ConfigDisk); d != nil && len(d.Chain) > 0 && !sameImage(d.Chain[0].Path, u.place()) {
		first = "have the definition name the image that is right (`virsh define` of a copy that does), then "
	}
	return fmt.Sprintf("%s has what was written since that migration, unless something was written to %s meanwhile: delete neither, and start no guest on the other. "+
		"docs/how-to/lose-a-host.md (The registry is lost) says how it is put right, with the guest off: %s`%s`, `%s` and `%s`", u.place(), u.vol.Location.Path, first,
		api.ShellLine("volferryctl", "instance", "forget", instance, "--force"), api.ShellLine("volferryctl", "volume", "forget", u.vol.Name),
		api.ShellLine("volferryctl", "instance", "adopt", instance))
}

// explain makes an answer about the volume say that registry and journal contradict each other.
func (u *unrecordedMove) explain(w *api.Which, dom *hv.Domain) {
	w.Agree = false
	text := u.witnesses(dom) + "; " + u.wayOut(dom)
	if w.Authoritative == nil && w.Live != nil {
		text = w.Explanation + "; " + text
	}
	w.Explanation = text
}

// holdsUnrecorded reports whether the registry has a volume at the src that this migration has left,
// since it does not know the migration.
func (m *Manager) holdsUnrecorded(ctx context.Context, h *history, look *location.Look) (bool, error) {
	holder, unknown := look.Holder(h.spec.Src.Path, location.Self{})
	if unknown != nil || holder.Volume == nil || holder.Volume.ID != h.spec.VolumeID {
		return false, nil //nolint:nilerr // the next look may know whose image it is
	}
	newest, err := m.newest(ctx, h.spec.VolumeID)
	if err != nil || newest == nil || newest.spec.MigrationID != h.spec.MigrationID {
		return false, err
	}
	move, err := m.unrecorded(ctx, *holder.Volume, newest)
	return move != nil, err
}
