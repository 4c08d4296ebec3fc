// SPDX-License-Identifier: Apache-2.0

package which

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// unrecordedMove is the last ended move of this host's journal, if the registry does not know it,
// or knows it as unfinished, because its database was restored from an older backup. The journal
// has all later changes, so registry and journal have the volume at different locations.
type unrecordedMove struct {
	last *lastPlace
	vol  api.Volume
	// open is the registry's state of the open move, or "" for an unknown move.
	open api.MigrationState
}

// unrecorded returns a volume's last move if registry and journal contradict each other because
// the registry lacks the end of that move; otherwise nil.
func (f *Finder) unrecorded(ctx context.Context, vol api.Volume, last *lastPlace) (*unrecordedMove, error) {
	if last == nil || !last.contradicts(&vol) {
		return nil, nil
	}
	mig, err := f.registry.Migration(ctx, last.migrationID)
	open := mig.State
	switch {
	case api.CodeOf(err) == api.CodeNotFound:
		open = ""
	case err != nil:
		return nil, err
	case last.led:
		return nil, nil // the registry decides where it ended
	case mig.State.Final() && mig.State != api.MigrationCompleted:
		return nil, nil // an operator has abandoned it, and chosen the copy
	}
	return &unrecordedMove{last, vol, open}, nil
}

// CheckVolumeRecorded refuses calls that depend on a volume's location if registry and journal
// have different locations, or the registry is unavailable.
func (f *Finder) CheckVolumeRecorded(ctx context.Context, vol api.Volume) error {
	found, err := f.unrecordedOfVolume(ctx, vol)
	if err != nil || found == nil {
		return err
	}
	return f.contradicted(ctx, found)
}

func (f *Finder) unrecordedOfVolume(ctx context.Context, vol api.Volume) (*unrecordedMove, error) {
	ops, err := f.history.PlaceOps(ctx)
	if err != nil {
		return nil, err
	}
	return f.unrecordedIn(ctx, ops, vol)
}

func (f *Finder) unrecordedIn(ctx context.Context, ops []op.Op, vol api.Volume) (*unrecordedMove, error) {
	last, err := f.lastPlace(ctx, ops, vol.ID)
	if err != nil {
		return nil, err
	}
	return f.unrecorded(ctx, vol, last)
}

// Contradiction is a volume that journal and registry have at different locations.
type Contradiction struct {
	Volume api.Volume
	// Witnesses describes the volume's place by registry, journal and libvirt. WayOut is the
	// operator's remedy.
	Witnesses, WayOut string
}

// Contradictions returns the volumes that CheckVolumeRecorded refuses.
func (f *Finder) Contradictions(ctx context.Context) ([]Contradiction, error) {
	ops, err := f.history.PlaceOps(ctx)
	if err != nil || len(ops) == 0 {
		return nil, err
	}
	var out []Contradiction
	err = f.claims.Site.EachVolume(ctx, func(v *api.Volume) error {
		found, err := f.unrecordedIn(ctx, ops, *v)
		if err != nil || found == nil {
			return err
		}
		dom, err := f.domainOf(ctx, found)
		if err == nil {
			out = append(out, Contradiction{*v, found.witnesses(dom), found.wayOut(dom)})
		}
		return err
	})
	return out, err
}

func (f *Finder) contradicted(ctx context.Context, found *unrecordedMove) error {
	dom, err := f.domainOf(ctx, found)
	if err != nil {
		return err
	}
	return api.Errorf(api.CodeChainChanged, "%s; %s", found.witnesses(dom), found.wayOut(dom)).With("migration_id", found.last.migrationID)
}

func (f *Finder) domainOf(ctx context.Context, found *unrecordedMove) (*hv.Domain, error) {
	for i := range found.vol.Attachments {
		dom, err := f.hv.Domain(ctx, found.vol.Attachments[i].InstanceID)
		switch {
		case err == nil:
			return dom, nil
		case !errors.Is(err, hv.ErrNotFound):
			return nil, look.HVRefusal(request.Refused(err))
		}
	}
	return nil, nil
}

// CheckRecorded is CheckVolumeRecorded for the volumes of an instance, but allows the call if the
// registry is unavailable.
func (f *Finder) CheckRecorded(ctx context.Context, instanceID string) error {
	found, err := f.unrecordedOf(ctx, instanceID)
	if request.Away(err) || errors.Is(err, context.DeadlineExceeded) || api.CodeOf(err) == api.CodeNotFound {
		return nil
	}
	if err != nil || found == nil {
		return err
	}
	return f.contradicted(ctx, found)
}

func (f *Finder) unrecordedOf(ctx context.Context, instanceID string) (*unrecordedMove, error) {
	ops, err := f.history.PlaceOps(ctx)
	if err != nil || len(ops) == 0 {
		return nil, err
	}
	inst, err := f.registry.Instance(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	for _, slot := range inst.BlockDeviceMappings {
		if slot.VolumeID == nil {
			continue
		}
		last, err := f.lastPlace(ctx, ops, *slot.VolumeID)
		if err != nil {
			return nil, err
		}
		if last == nil {
			continue
		}
		vol, err := f.registry.Volume(ctx, *slot.VolumeID)
		if err != nil {
			return nil, err
		}
		if found, err := f.unrecorded(ctx, vol, last); found != nil || err != nil {
			return found, err
		}
	}
	return nil, nil
}

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

func (u *unrecordedMove) witnesses(dom *hv.Domain) string {
	knows := "does not know"
	if u.open != "" {
		knows = fmt.Sprintf("has as %s", u.open)
	}
	says := []string{
		fmt.Sprintf("the registry has volume %s at %s", u.vol.Name, u.vol.Location.Path),
		fmt.Sprintf("the journal of this host %s %s since migration %s, which the registry %s (it was restored from a backup of before, perhaps)", u.last.moved, u.last.path, u.last.migrationID, knows),
	}
	if d := u.disk(dom, (*hv.Domain).ConfigDisk); d != nil && len(d.Chain) > 0 {
		says = append(says, fmt.Sprintf("the definition of instance %s names %s", dom.Name, d.Chain[0].Path))
	}
	if d := u.disk(dom, (*hv.Domain).LiveDisk); d != nil && len(d.Chain) > 0 {
		says = append(says, "its guest runs on "+d.Chain[0].Path)
	}
	return strings.Join(says, "; ")
}

// wayOut describes the remedy: the operator adopts the volume again where its definition has it.
// If the registry knows the move as unfinished, it only has to accept changes again.
func (u *unrecordedMove) wayOut(dom *hv.Domain) string {
	if u.open != "" && !u.open.Final() {
		return fmt.Sprintf("this host reports the end of that migration once the restore of the registry is accepted and this host has rejoined; `%s` reports it at once, or says why it cannot: start no guest on %s before, and delete neither",
			u.last.again, u.vol.Location.Path)
	}
	instance := "INSTANCE"
	if dom != nil {
		instance = dom.Name
	}
	first := ""
	if d := u.disk(dom, (*hv.Domain).ConfigDisk); d != nil && len(d.Chain) > 0 && !SameImage(d.Chain[0].Path, u.last.path) {
		first = "have the definition name the image that is right (`virsh define` of a copy that does), then "
	}
	if id := u.last.migrationID; u.last.led {
		first = fmt.Sprintf("while an instance is still saved for the move (`%s` says so), `%s` at the registry ends it there, or `%s` at its source; else ",
			shell.Line("volferryctl", "instance", "show", instance), shell.Line("volferryctl", "migration", "complete", id), shell.Line("volferryctl", "migration", "cancel", id)) + first
	}
	return fmt.Sprintf("%s has what was written since that migration, unless something was written to %s meanwhile: delete neither, and start no guest on the other. "+
		"docs/how-to/lose-a-host.md (The registry is lost) says how it is put right, with the guest off: %s`%s`, `%s` and `%s`", u.last.path, u.vol.Location.Path, first,
		shell.Line("volferryctl", "instance", "forget", instance, "--force"), shell.Line("volferryctl", "volume", "forget", u.vol.Name),
		shell.Line("volferryctl", "instance", "adopt", instance))
}

func (u *unrecordedMove) explain(w *api.Which, dom *hv.Domain) {
	w.Agree = false
	if w.Authoritative != nil && !SameImage(w.Authoritative[0].Path, u.last.path) {
		w.Authoritative = nil
	}
	text := u.witnesses(dom) + "; " + u.wayOut(dom)
	if w.Authoritative == nil && w.Live != nil {
		text = w.Explanation + "; " + text
	}
	w.Explanation = text
}

// HoldsUnrecorded reports whether the registry still has a volume at the src of this migration,
// because the registry does not know that the migration has ended.
func (f *Finder) HoldsUnrecorded(ctx context.Context, h *history.Migration, claims *location.Look) (bool, error) {
	holder, unknown := claims.Holder(h.Spec.Src.Path, location.Self{})
	if unknown != nil || holder.Volume == nil || holder.Volume.ID != h.Spec.VolumeID {
		return false, nil //nolint:nilerr // the next look may know the image's volume
	}
	found, err := f.unrecordedOfVolume(ctx, *holder.Volume)
	return found != nil && found.last.migrationID == h.Spec.MigrationID, err
}
