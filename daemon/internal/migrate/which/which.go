// SPDX-License-Identifier: Apache-2.0

package which

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/overlay"
	"github.com/volferry/volferry/daemon/internal/witness"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// Find returns the chains of the volume in registry, journal and libvirt, and the chain with every
// acknowledged write of the guest. It changes nothing and guesses nothing. With an error the
// result is incomplete and must not be used.
func (f *Finder) Find(ctx context.Context, vol api.Volume) (api.Which, error) {
	w := api.Which{VolumeID: vol.ID, Registry: &vol.Location, Journal: history.WithBases(vol.Location)}
	h, err := f.history.Newest(ctx, vol.ID)
	if err != nil {
		return w, err
	}
	found := holder{vol: vol, newest: h}
	// The registry decides where a move that it leads has ended.
	if h != nil && !h.Spec.LedByRegistry() && !found.overtaken() {
		w.Journal = h.Chain()
	}
	if err := f.findHolder(ctx, &found, &w); err != nil {
		return w, err
	}
	found.compare(&w)
	if f.witnessesDisagree(ctx, &w, &found) {
		return w, nil
	}
	if u, err := f.unrecordedOfVolume(ctx, vol); err == nil && u != nil { // unknown without the registry
		u.explain(&w, found.dom)
	}
	f.recognizeCommit(ctx, &w, &found)
	f.explainSnapshot(ctx, &w, &found)
	if err := f.confirmLive(ctx, &w, &found); err != nil {
		return w, err
	}
	f.confirmAtRest(ctx, &w, &found)
	return w, f.compareOthers(ctx, &w, &found)
}

// compareOthers makes the comparison of Find for the volume's other instances on this host. A
// worse answer replaces w: an answer without an authoritative chain, or the first disagreement.
func (f *Finder) compareOthers(ctx context.Context, w *api.Which, found *holder) error {
	if found.hold != holdHere {
		return nil
	}
	for i := range found.vol.Attachments {
		att := &found.vol.Attachments[i]
		if att.ID == found.of.ID || att.State != api.AttachmentAttached {
			continue
		}
		dom, err := f.hv.Domain(ctx, att.InstanceID)
		if errors.Is(err, hv.ErrNotFound) {
			continue
		}
		if err != nil {
			return cannotLook(att, err)
		}
		other := *found
		other.of, other.dom = att, dom
		seen := api.Which{
			VolumeID: w.VolumeID, Registry: w.Registry, Journal: w.Journal,
			Live: locations(dom.LiveDisk(att.Device), found.vol.Location), Persistent: locations(dom.ConfigDisk(att.Device), found.vol.Location),
		}
		other.compare(&seen)
		if err := f.confirmLive(ctx, &seen, &other); err != nil {
			return err
		}
		if !seen.Agree && (seen.Authoritative == nil || w.Agree) {
			*w = seen
		}
	}
	return nil
}

func cannotLook(att *api.Attachment, err error) error {
	return api.Errorf(api.CodeHypervisorUnavailable, "cannot look at instance %s: %v", att.InstanceID, err)
}

// witnessesDisagree reports whether libvirt and the kernel contradict each other about the images
// of a guest with an open migration: the guest may write to another image than recorded. It
// returns false during an op: a short contradiction is normal then, and the op makes this check
// itself.
func (f *Finder) witnessesDisagree(ctx context.Context, w *api.Which, found *holder) bool {
	h := found.newest
	if found.dom == nil || !found.moving() || found.atWork() || !overlay.Watched(&h.Spec) || h.Spec.InstanceID != found.dom.ID {
		return false
	}
	why := f.overlay.WitnessesDisagree(ctx, &h.Spec)
	if why != "" {
		w.Authoritative, w.Agree, w.Explanation = nil, false, why
	}
	return why != ""
}

// recognizeCommit corrects an answer if another program has committed the overlay of an open
// migration into src under the running guest: src has every write.
func (f *Finder) recognizeCommit(ctx context.Context, w *api.Which, found *holder) {
	if w.Authoritative != nil || w.Live == nil || !found.moving() || found.atWork() {
		return
	}
	s := &found.newest.Spec
	if s.Method != move.MethodOverlay || s.InstanceID != found.dom.ID || !f.plans.OverlayWasCommitted(ctx, s) {
		return
	}
	w.Authoritative = w.Live
	w.Explanation = fmt.Sprintf("somebody else has committed the overlay of instance %s into %s under the running guest (virsh blockcommit, say): it has every write, and the guest goes on there. "+
		"The move cannot be completed: take it back (`%s`), and delete the overlay %s after that, which is kept", found.dom.Name, s.Src.Path, shell.Line("volferryctl", "migration", "cancel", s.MigrationID), s.Overlay)
}

// explainSnapshot handles images (snapshots) that another program has put over the disk of an open
// migration: the answer then explains how to merge them.
func (f *Finder) explainSnapshot(ctx context.Context, w *api.Which, found *holder) {
	h := found.newest
	if w.Agree || found.dom == nil || !found.moving() || found.atWork() || !overlay.Watched(&h.Spec) || h.Spec.InstanceID != found.dom.ID {
		return
	}
	if problem, known := f.overlay.UnderSnapshot(ctx, &h.Spec); known && problem != nil {
		w.Explanation = problem.Message
	}
}

// confirmLive asks the kernel whether the guest's process has the answer's image open: after
// libvirtd died inside a call, libvirt shows the old chain. It does not ask during an op, which
// changes the chain and checks it itself.
func (f *Finder) confirmLive(ctx context.Context, w *api.Which, found *holder) error {
	if w.Live == nil || w.Authoritative == nil || found.atWork() {
		return nil
	}
	top := w.Authoritative[0].Path
	open, err := witness.Look(ctx, f.hv, found.dom.ID, found.dom.Name, top)
	if err != nil {
		return api.Errorf(api.CodeHypervisorUnavailable, "cannot see what the process of instance %s has open: %v", found.dom.Name, err)
	}
	// QEMU may open the images of a guest that has not run since its restore for reading only.
	writes := found.dom.State == hv.StateRunning && !found.dom.LiveDisk(found.of.Device).ReadOnly
	if open.Process && (!open.Open || writes && !open.Writable) {
		w.Authoritative, w.Agree = nil, false
		w.Explanation = fmt.Sprintf("libvirt has instance %s on %s, and by the kernel's word its process does not write there: libvirtd has probably died inside a call; docs/how-to/recover.md (libvirt and QEMU disagree) says what can be done", found.dom.Name, top)
	}
	return nil
}

// confirmAtRest checks, without a running guest, that the answer's images exist: registry and
// journal may agree on a path in an unmounted filesystem. An image that this host cannot check
// does not count as missing.
func (f *Finder) confirmAtRest(ctx context.Context, w *api.Which, found *holder) {
	if w.Authoritative == nil || w.Live != nil || found.moving() || found.hold != holdHere && !f.Reaches(ctx, found.vol) {
		return
	}
	if path := f.AbsentOf(ctx, w.Authoritative); path != "" {
		w.Authoritative, w.Agree = nil, false
		w.Explanation = fmt.Sprintf("there is no image at %s: %s", path, AbsentHint(path))
	}
}

// Reaches reports whether this host can look at the image of a volume. It returns false until the
// registry has named this host to the daemon.
func (f *Finder) Reaches(ctx context.Context, vol api.Volume) bool {
	host, err := f.host(ctx)
	return err == nil && f.CheckReach(ctx, vol, host) == nil
}

// AbsentHint returns the likeliest reason for a missing image, as a question.
func AbsentHint(path string) string {
	if strings.HasPrefix(path, "/dev/") {
		return "is its device there? `" + shell.Line("lvchange", "-ay", "-K", "--", path) + "` activates a logical volume"
	}
	return "is its filesystem mounted?"
}

// AbsentOf returns the path of the chain's first missing image, or "".
func (f *Finder) AbsentOf(ctx context.Context, chain []api.Location) string {
	for _, l := range chain {
		if _, err := f.images.Fingerprint(ctx, l.Path); errors.Is(err, image.ErrAbsent) {
			return l.Path
		}
	}
	return ""
}

// findHolder sets the attachment that decides where the volume is and, if its instance is on this
// host, the volume's chains there. A reserved attachment is known only to the registry. While a
// volume is being attached or detached, the instance may lack the disk.
func (f *Finder) findHolder(ctx context.Context, found *holder, w *api.Which) error {
	vol := &found.vol
	for i := range vol.Attachments {
		att := &vol.Attachments[i]
		if att.State == api.AttachmentReserved {
			continue
		}
		dom, err := f.hv.Domain(ctx, att.InstanceID)
		if err != nil && !errors.Is(err, hv.ErrNotFound) {
			return cannotLook(att, err)
		}
		if dom != nil {
			w.Live = locations(dom.LiveDisk(att.Device), vol.Location)
			w.Persistent = locations(dom.ConfigDisk(att.Device), vol.Location)
		}
		if w.Live != nil || w.Persistent != nil {
			found.hold, found.of, found.dom = holdHere, att, dom
			return nil
		}
		here, err := f.holdingOf(ctx, att, dom)
		if err != nil {
			return err
		}
		onItsWay := att.State == api.AttachmentAttaching || att.State == api.AttachmentDetaching
		if !onItsWay && here > found.hold {
			found.hold, found.of, found.dom = here, att, dom
		}
	}
	return nil
}

// holdingOf returns where an attachment's instance is, according to the registry if the domain is
// not on this host.
func (f *Finder) holdingOf(ctx context.Context, att *api.Attachment, dom *hv.Domain) (holding, error) {
	switch {
	case dom != nil:
		return holdHere, nil
	case att.Host == "":
		return holdShelved, nil
	}
	host, err := f.host(ctx)
	if err != nil {
		return holdNobody, err
	}
	if att.Host == host.Name || att.Host == host.ID {
		return holdHere, nil
	}
	return holdElsewhere, nil
}

// locations returns a disk's chain. If the definition omits the base images it takes them from the
// volume's header.
func locations(d *hv.Disk, of api.Location) []api.Location {
	if d == nil {
		return nil
	}
	out := make([]api.Location, len(d.Chain))
	for i, img := range d.Chain {
		out[i] = api.Location{Path: img.Path, Format: api.Format(img.Format), SizeBytes: of.SizeBytes}
	}
	if n := len(out); n > 0 && !d.Terminated && out[n-1].Path == of.Path {
		out = append(out, history.WithBases(of)[1:]...)
	}
	return out
}
