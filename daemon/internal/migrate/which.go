// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/internal/api"
)

// Which returns what registry, journal and libvirt each have as the volume's chain, and
// which chain has every write that the guest was told is done. It changes nothing and
// guesses nothing.
func (m *Manager) Which(ctx context.Context, vol api.Volume) (api.Which, error) {
	w := api.Which{VolumeID: vol.ID, Registry: &vol.Location, Journal: withBases(vol.Location)}
	h, err := m.newest(ctx, vol.ID)
	if err != nil {
		return w, err
	}
	if h != nil && h.spec.Method != steps.MethodSave { // where that ended is the registry's word
		w.Journal = h.chain()
	}
	hold, of, err := m.holder(ctx, &vol, &w)
	if err != nil {
		return w, err
	}
	compareWitnesses(&w, vol, hold, of)
	return w, nil
}

// holding says, by the attachments of a volume, who has its disk; a greater holding outweighs
// a smaller one.
type holding int

const (
	// holdNobody: no instance is to have a disk of the volume.
	holdNobody holding = iota
	// holdShelved: the instances that are to have the disk are on no host.
	holdShelved
	// holdElsewhere: an instance that is to have the disk is on another host.
	holdElsewhere
	// holdHere: an instance that is to have the disk is on this host.
	holdHere
)

// holder fills in the chains that an instance of this host has of the volume, if there is
// one, and returns the attachment that decides. A reserved attachment is known to the
// registry alone, and while a volume is attached or detached it may not be in the instance.
func (m *Manager) holder(ctx context.Context, vol *api.Volume, w *api.Which) (hold holding, of *api.Attachment, err error) {
	for i := range vol.Attachments {
		att := &vol.Attachments[i]
		if att.State == api.AttachmentReserved {
			continue
		}
		dom, err := m.ports.HV.Domain(ctx, att.InstanceID)
		if err != nil && !errors.Is(err, hv.ErrNotFound) {
			return holdNobody, nil, api.Errorf(api.CodeHypervisorUnavailable, "cannot look at instance %s: %v", att.InstanceID, err)
		}
		if dom != nil {
			w.Live = locations(dom.LiveDisk(att.Device), vol.Location)
			w.Persistent = locations(dom.ConfigDisk(att.Device), vol.Location)
		}
		if w.Live != nil || w.Persistent != nil {
			return holdHere, att, nil
		}
		here, err := m.holdingOf(ctx, att, dom)
		if err != nil {
			return holdNobody, nil, err
		}
		onItsWay := att.State == api.AttachmentAttaching || att.State == api.AttachmentDetaching
		if !onItsWay && here > hold {
			hold, of = here, att
		}
	}
	return hold, of, nil
}

// holdingOf says where the instance of an attachment is, by the registry, if its domain does
// not have the disk. A domain that is on this host all the same is here.
func (m *Manager) holdingOf(ctx context.Context, att *api.Attachment, dom *hv.Domain) (holding, error) {
	switch {
	case dom != nil:
		return holdHere, nil
	case att.Host == "":
		return holdShelved, nil
	}
	host, err := m.host(ctx)
	if err != nil {
		return holdNobody, err
	}
	if att.Host == host.Name || att.Host == host.ID {
		return holdHere, nil
	}
	return holdElsewhere, nil
}

// locations are the chain of a disk, with the base images of the volume where its definition
// leaves them to what the header of the volume says.
func locations(d *hv.Disk, of api.Location) []api.Location {
	if d == nil {
		return nil
	}
	out := make([]api.Location, len(d.Chain))
	for i, img := range d.Chain {
		out[i] = api.Location{Path: img.Path, Format: api.Format(img.Format), SizeBytes: of.SizeBytes}
	}
	if n := len(out); n > 0 && !d.Terminated && out[n-1].Path == of.Path {
		out = append(out, withBases(of)[1:]...)
	}
	return out
}

// compareWitnesses says which chain is right. If the guest runs, its live chain is, since its
// writes go there; if it does not run, the journal is right, if the persistent definition
// agrees.
func compareWitnesses(w *api.Which, vol api.Volume, hold holding, of *api.Attachment) {
	same := func(a, b []api.Location) bool {
		return slices.EqualFunc(a, b, func(x, y api.Location) bool { return filepath.Clean(x.Path) == filepath.Clean(y.Path) })
	}
	who := "nothing is attached to the volume"
	if hold == holdShelved {
		who = fmt.Sprintf("instance %s, which has the volume, is shelved_offloaded: no host has it, and nothing writes", cmp.Or(of.InstanceName, of.InstanceID))
	}
	alone := hold == holdNobody || hold == holdShelved
	switch {
	case alone && same(w.Journal, withBases(vol.Location)):
		w.Authoritative, w.Agree = w.Journal, true
		w.Explanation = who + "; registry and journal agree"
	case alone:
		w.Explanation = who + ", and registry and journal name different places: " +
			"a move on this host that the registry does not know of yet, or one on another host since"
	case hold == holdElsewhere:
		w.Explanation = fmt.Sprintf("instance %s, which has the volume, is on host %s, and only that host can look at it; ask there", cmp.Or(of.InstanceName, of.InstanceID), of.Host)
	case w.Persistent == nil:
		w.Explanation = "the instance or its disk is not on this host any more; by the journal the data is in the chain shown there"
	case w.Live != nil:
		w.Authoritative, w.Agree = w.Live, same(w.Live, w.Persistent) && same(w.Live, w.Journal)
		w.Explanation = "the instance runs on this chain; journal and persistent definition agree"
	case same(w.Persistent, w.Journal):
		w.Authoritative, w.Agree = w.Journal, true
		w.Explanation = "the instance is stopped; journal and persistent definition agree"
	default:
		w.Explanation = "the instance is stopped, and the journal and the persistent definition name different chains; do not start it before you know which is right"
	}
	if !w.Agree && w.Authoritative != nil {
		w.Explanation = fmt.Sprintf("the witnesses disagree; the chain shown as authoritative is what is in use now (%s)", w.Authoritative[0].Path)
	}
	if w.Agree && !slices.ContainsFunc(w.Journal, func(l api.Location) bool { return l.Path == vol.Location.Path }) {
		w.Agree = false
		w.Explanation = "the host has finished a move that the registry does not know of yet; it catches up by itself once it is reachable"
	}
}
