// SPDX-License-Identifier: Apache-2.0

package which

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// holding is where the instance with the volume is. If the volume has several attachments, the
// greatest value counts.
type holding int

const (
	holdNobody holding = iota
	holdShelved
	holdElsewhere
	holdHere
)

type holder struct {
	vol api.Volume
	// newest is this host's newest migration of the volume, or nil.
	newest *history.Migration
	hold   holding
	of     *api.Attachment
	dom    *hv.Domain // nil if it is not on this host
}

func (f *holder) instance() string {
	if f.dom != nil {
		return f.dom.Name
	}
	return cmp.Or(f.of.InstanceName, f.of.InstanceID)
}

// compare decides which chain is right. A running guest's chain is right only if registry or
// journal explain it: an operator may have put the guest back on an image that the volume has
// left, and then neither image has every write.
func (f *holder) compare(w *api.Which) {
	switch f.hold {
	case holdNobody:
		f.compareRecords(w, "nothing is attached to the volume")
	case holdShelved:
		f.compareRecords(w, fmt.Sprintf("instance %s, which has the volume, is shelved_offloaded: no host has it, and nothing writes", f.instance()))
	case holdElsewhere:
		w.Explanation = fmt.Sprintf("instance %s, which has the volume, is on host %s, and only that host can look at it; ask there", f.instance(), f.of.Host)
	case holdHere:
		switch {
		case w.Live != nil:
			f.compareRunning(w)
		case f.dom != nil && f.dom.State.Active():
			w.Explanation = fmt.Sprintf("instance %s runs without disk %s, which is the volume by the registry: it was taken from the guest by somebody else", f.instance(), f.of.Device)
		default:
			f.compareStopped(w)
		}
	}
	if w.Agree && !slices.ContainsFunc(w.Journal, func(l api.Location) bool { return l.Path == f.vol.Location.Path }) {
		w.Agree = false
		w.Explanation = "the host has finished a move that the registry does not know of yet; it catches up by itself once it is reachable"
		if f.moving() {
			w.Explanation = fmt.Sprintf("a move has begun at %s, and the registry's last word is %s, which is older than that; ask again once it is reachable", f.newest.Spec.Src.Path, f.vol.Location.Path)
		}
	}
}

func (f *holder) compareRecords(w *api.Which, who string) {
	if sameChain(w.Journal, history.WithBases(f.vol.Location)) {
		w.Authoritative, w.Agree = w.Journal, true
		w.Explanation = who + "; registry and journal agree"
		return
	}
	w.Explanation = who + ", and registry and journal name different places: " +
		"a move on this host that the registry does not know of yet, or one on another host since"
}

func (f *holder) compareStopped(w *api.Which) {
	switch {
	case w.Persistent == nil:
		w.Explanation = "the instance or its disk is not on this host any more; by the journal the data is in the chain shown there"
	case sameChain(w.Persistent, w.Journal):
		w.Authoritative, w.Agree = w.Journal, true
		w.Explanation = "the instance is stopped; journal and persistent definition agree"
	default:
		w.Explanation = fmt.Sprintf("instance %s is stopped, and the journal and its persistent definition name different chains; do not start it before you know which is right; docs/how-to/recover.md (A definition that was put back) says what can be done", f.instance())
	}
}

func (f *holder) compareRunning(w *api.Which) {
	switch {
	case sameChain(w.Live, w.Journal) && !f.dom.Persistent:
		w.Authoritative = w.Live
		w.Explanation = fmt.Sprintf("instance %s runs on this chain, which is the journal's, and has no definition any more: somebody has undefined it, and it would be gone once it is off; define it again while it runs (%s)", f.instance(), shell.DefineAgain(f.instance()))
	case sameChain(w.Live, w.Journal) && sameChain(w.Live, w.Persistent):
		w.Authoritative, w.Agree = w.Live, true
		w.Explanation = "the instance runs on this chain; journal and persistent definition agree"
	case sameChain(w.Live, w.Journal) && w.Persistent != nil && !f.moving():
		w.Authoritative = w.Live
		w.Explanation = fmt.Sprintf("instance %s runs on the chain shown as authoritative, and its persistent definition names %s: it would start from there the next time; once it is off, `%s` puts %s back into it", f.instance(), w.Persistent[0].Path, shell.Line("volferryctl", "instance", "repair", f.instance()), w.Live[0].Path)
	case f.underSnapshot(w):
		w.Authoritative = w.Live
		w.Explanation = fmt.Sprintf("instance %s runs on %s, a snapshot of somebody else over %s; the chain shown as authoritative has every write", f.instance(), w.Live[0].Path, w.Journal[0].Path)
	case f.leadsTo(w):
		w.Authoritative = w.Live
		w.Explanation = fmt.Sprintf("the witnesses disagree; the chain shown as authoritative is what is in use now (%s)", w.Live[0].Path)
	default:
		section := "A guest on another image than its volume"
		if f.moving() && f.newest.OnOverlay() {
			section = "A source that was written"
		}
		w.Explanation = fmt.Sprintf("instance %s runs on %s and writes there, and by the record the volume is at %s, where nothing writes: each may hold what the other lacks; "+
			"delete neither, and do not detach, move or delete the volume; docs/how-to/recover.md (%s) says what can be done",
			f.instance(), w.Live[0].Path, w.Journal[0].Path, section)
	}
}

// underSnapshot reports whether the guest runs on an image that another program has put over the
// journal's chain.
func (f *holder) underSnapshot(w *api.Which) bool {
	ours := f.newest != nil && f.newest.Spec.Overlay == w.Live[0].Path
	return !f.atWork() && !ours && len(w.Live) > len(w.Journal) && onJournal(w)
}

func onJournal(w *api.Which) bool {
	n := len(w.Live) - len(w.Journal)
	return n >= 0 && sameChain(w.Live[n:], w.Journal)
}

// leadsTo reports whether the volume's records explain the guest's chain: the chain is or contains
// the recorded chain, or an op is changing it.
func (f *holder) leadsTo(w *api.Which) bool {
	if onJournal(w) {
		return true
	}
	return f.atWork() && move.PositionOf(&f.newest.Spec, f.dom.LiveDisk(f.of.Device)) != move.Foreign
}

func (f *holder) atWork() bool {
	if f.newest == nil {
		return false
	}
	o := f.newest.Running()
	return o != nil && o.State != op.StateNeedsOperator && !o.LeavesChain()
}

func (f *holder) moving() bool {
	if f.newest == nil {
		return false
	}
	state, _ := f.newest.State()
	return !state.Final()
}

// overtaken reports whether another host has moved the volume since its newest migration here:
// then the location in this journal is old.
func (f *holder) overtaken() bool {
	h := f.newest
	if state, _ := h.State(); !state.Final() {
		return false
	}
	return f.vol.Generation > generationAfter(h)
}

// generationAfter returns the volume's generation after a migration that has ended.
func generationAfter(h *history.Migration) int64 {
	if h.Position() == move.OnDst {
		return h.Spec.Generation + 1
	}
	return h.Spec.Generation
}

func sameChain(a, b []api.Location) bool {
	return slices.EqualFunc(a, b, func(x, y api.Location) bool { return SameImage(x.Path, y.Path) })
}

// SameImage reports whether two paths are known to name one image.
func SameImage(a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true // no filesystem needs to be asked
	}
	same, err := location.SameImage(a, b)
	return same && err == nil
}
