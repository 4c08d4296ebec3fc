// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/witness"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// held is what the guest's process has open of a migration's images, by the
// kernel's word: the second witness, beside libvirt's.
type held struct {
	process           bool // there is one
	src, overlay, dst bool
	srcWritable       bool
}

// openOf asks the kernel. Its errors are typed for the runner.
func (e *Env) openOf(ctx context.Context, s *Spec) (*held, error) {
	h := &held{process: true}
	for _, image := range []struct {
		path string
		open *bool
	}{{s.Src.Path, &h.src}, {s.Overlay, &h.overlay}, {s.Dst.Path, &h.dst}} {
		if image.path == "" {
			continue
		}
		is, err := witness.Look(ctx, e.hv, s.InstanceID, s.InstanceName, image.path)
		if err != nil {
			return nil, err
		}
		if !is.Process {
			return &held{}, nil
		}
		*image.open = is.Open
		h.srcWritable = h.srcWritable || image.path == s.Src.Path && is.Writable
	}
	return h, nil
}

// at is where the process has the disk, foreign if that cannot be told from what it
// has open. A job into dst has dst open too, and the guest is not on it.
func (h *held) at() place {
	switch {
	case h.overlay:
		return onOverlay
	case h.src:
		return onSrc
	case h.dst:
		return onDst
	}
	return foreign
}

func (h *held) String() string {
	var open []string
	for _, image := range []struct {
		what string
		is   bool
	}{{"src (for writing)", h.srcWritable}, {"src", h.src && !h.srcWritable}, {"the overlay", h.overlay}, {"dst", h.dst}} {
		if image.is {
			open = append(open, image.what)
		}
	}
	switch {
	case !h.process:
		return "no process of it is there"
	case len(open) == 0:
		return "its process has neither src nor dst nor an overlay open"
	}
	return "its process has " + strings.Join(open, " and ") + " open"
}

// agrees says whether both witnesses can be right. Of a chain that is somebody
// else's, and of a job that is ending, nothing can be said.
func (h *held) agrees(s *Spec, v *view) bool {
	switch {
	case !v.active:
		return !h.src && !h.overlay && !h.dst
	case v.live == foreign, v.mirror != nil && v.mirror.Ending:
		return true
	case !h.process, h.overlay != (v.live == onOverlay && s.Overlay != ""):
		return false
	}
	if v.live == onDst {
		return h.dst && !h.src
	}
	return h.src && (v.mirror != nil || !h.dst) // or a job that libvirt does not know of writes to dst
}

// errDisagree: libvirt and the kernel say different things of the same disk. Nothing
// may be undone, deleted or released by the word of one of them.
type errDisagree struct {
	why *api.Error
	// at is where the process has the disk; config is where its next start has it.
	at, config place
}

func (disagreed *errDisagree) Error() string { return disagreed.why.Message }
func (disagreed *errDisagree) Unwrap() error { return disagreed.why }

// sure is lookAt that asks the second witness as well. Its errors are typed for the
// runner.
func (e *Env) sure(ctx context.Context, s *Spec) (*view, error) {
	patience := witness.Patience{Poll: 20 * time.Millisecond, Bound: 10 * time.Second, Now: e.now}
	return witness.Agreed(ctx, patience, s.InstanceName, func(ctx context.Context) (heard witness.Heard[*view], err error) {
		if heard.View, err = e.lookAt(ctx, s); err != nil {
			return heard, err
		}
		h, err := e.openOf(ctx, s)
		if err != nil {
			return heard, err
		}
		heard.Occupied = heard.View.dom.Occupied
		if !h.agrees(s, heard.View) {
			heard.Disagree = &errDisagree{disagree(s, heard.View, h), h.at(), heard.View.config}
		}
		return heard, nil
	})
}

func disagree(s *Spec, v *view, h *held) *api.Error {
	is := "as stopped"
	if v.active {
		is = "with disk " + s.Target + " on " + string(v.live)
	}
	return api.Errorf(api.CodeChainChanged,
		"libvirt has instance %s %s, and by the kernel's word %s: libvirtd has probably died inside a call, and does not look again. Nothing was undone, deleted or released. "+
			"Do not save, suspend to disk or live-migrate the instance, which would go on with libvirt's chain: shut it down, start it again, "+
			"and call complete or cancel of migration %s once more (docs/how-to/recover.md)",
		s.InstanceName, is, h, s.MigrationID)
}

// strangeCommit says that QEMU may be at work on a commit into src that libvirt does
// not know of: it refuses ours, and has src open for writing.
func (e *Env) strangeCommit(ctx context.Context, s *Spec) error {
	v, err := e.lookAt(ctx, s)
	if err != nil {
		return err
	}
	h, err := e.openOf(ctx, s)
	if err != nil || !v.active || v.live != onOverlay || v.mirror != nil || !h.srcWritable {
		return err
	}
	return op.UnknownOutcome(&errDisagree{disagree(s, v, h), h.at(), v.config})
}

// standStill is what is done where the witnesses disagree while the guest is paused
// by the op: nothing is undone, but it may not wait for a person. Both chains are
// equal in the pause, so the definition is made to name the one that the process has
// before it goes on. Other errors are passed on.
func (e *Env) standStill(ctx context.Context, r *op.Run, s *Spec, p pause, err error) error {
	var disagreed *errDisagree
	if !errors.As(err, &disagreed) {
		return err
	}
	chains := map[place][]hv.Image{onSrc: s.srcChain(), onDst: s.dstChain()}
	if s.Overlay != "" {
		chains[onOverlay] = s.overlayChain()
	}
	if _, ours := chains[disagreed.config]; ours && disagreed.at != foreign && disagreed.at != disagreed.config {
		if nameErr := e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, chains[disagreed.at]); nameErr != nil {
			return e.hvError(nameErr)
		}
	}
	if resumeErr := e.resume(ctx, r, s, p); resumeErr != nil {
		return resumeErr
	}
	return err
}

// lookedInPause is sure for a step in the pause of a switch.
func (e *Env) lookedInPause(ctx context.Context, r *op.Run, s *Spec) (*view, error) {
	v, err := e.sure(ctx, s)
	if err != nil {
		return nil, e.standStill(ctx, r, s, toSwitch, err)
	}
	return v, nil
}

// notHeld makes sure, before an image is deleted, that no process of a domain of this
// host has it open, whatever libvirt says of the domain.
func (e *Env) notHeld(ctx context.Context, doms []hv.Domain, path string) error {
	for i := range doms {
		h, err := witness.Look(ctx, e.hv, doms[i].ID, doms[i].Name, path)
		if err != nil {
			return err
		}
		if h.Open {
			return op.UnknownOutcome(api.Errorf(api.CodeDstInUse, "%s was to be deleted, but the process of instance %s has it open, of which libvirt knows nothing; nothing was deleted: shut the instance down and start it again, then call again (docs/how-to/recover.md)",
				path, doms[i].Name))
		}
	}
	return nil
}

// mayRelease is asked before the registry is told that the migration is over, so that
// others may have src, dst or the volume.
func (e *Env) mayRelease(ctx context.Context, s *Spec) error {
	if !s.attached() {
		return nil
	}
	_, err := e.sure(ctx, s)
	if !errors.Is(err, hv.ErrNotFound) {
		return err
	}
	// It was undefined: what it had is known by its process alone.
	h, err := e.openOf(ctx, s)
	if err != nil {
		return err
	}
	if none := (held{}); *h != none {
		return op.UnknownOutcome(api.Errorf(api.CodeChainChanged, "instance %s is not defined any more, and %s; nothing was released", s.InstanceName, h))
	}
	return nil
}
