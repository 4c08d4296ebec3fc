// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// held is what the guest's process has open of a migration's images, by the
// kernel's word: the second witness, beside libvirt's. A libvirtd that died inside a
// call comes back with its old status, and shows the chain of before for ever.
type held struct {
	process           bool // there is one
	src, overlay, dst bool
	srcWritable       bool
}

// openOf asks the kernel. Its errors are typed for the runner.
func (m *machine) openOf(ctx context.Context, s *Spec) (*held, error) {
	h := &held{process: true}
	for _, image := range []struct {
		path           string
		open, writable *bool
	}{{s.Src.Path, &h.src, &h.srcWritable}, {s.Overlay, &h.overlay, new(bool)}, {s.Dst.Path, &h.dst, new(bool)}} {
		if image.path == "" {
			continue
		}
		files, err := m.hv.OpenFiles(ctx, s.InstanceID, image.path)
		switch {
		case errors.Is(err, hv.ErrNotActive):
			return &held{}, nil
		case errors.Is(err, fs.ErrNotExist):
			continue // nothing has this name
		case err != nil:
			return nil, op.WaitFor(request.WaitHypervisor, fmt.Errorf("see what instance %s has open: %w", s.InstanceName, err))
		}
		*image.open = len(files) > 0
		for _, f := range files {
			*image.writable = *image.writable || f.Writable
		}
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

// Bounds of a second look. Libvirt needs a moment to notice that a process is
// dead, and QEMU one to close an image that it has left.
const (
	witnessPoll     = 20 * time.Millisecond
	witnessPatience = 10 * time.Second
)

// errDisagree: libvirt and the kernel say different things of the same disk. Nothing
// may be undone, deleted or released by the word of one of them.
type errDisagree struct {
	why *api.Error
	// at is where the process has the disk; config is where its next start has it.
	at, config place
}

func (e *errDisagree) Error() string { return e.why.Message }
func (e *errDisagree) Unwrap() error { return e.why }

// sure is lookAt that asks the second witness as well, and looks again for a while if
// the two disagree or if a call on the guest's process is under way: that may be one
// of ours whose answer was lost, and whatever was seen could be wrong the next moment. Its errors are typed for
// the runner; in the end the outcome is unknown.
func (m *machine) sure(ctx context.Context, s *Spec) (*view, error) {
	for until := m.now().Add(witnessPatience); ; {
		v, err := m.lookAt(ctx, s)
		if err != nil {
			return nil, err
		}
		h, err := m.openOf(ctx, s)
		if err != nil {
			return nil, err
		}
		switch over := !m.now().Before(until); {
		case h.agrees(s, v) && !v.dom.Occupied:
			return v, nil
		case over && v.dom.Occupied:
			return nil, op.WaitFor(request.WaitHypervisor, api.Errorf(api.CodeInstanceBusy, "a call of libvirt on instance %s is under way", s.InstanceName))
		case over:
			return nil, op.UnknownOutcome(&errDisagree{disagree(s, v, h), h.at(), v.config})
		}
		if err := request.Sleep(ctx, witnessPoll); err != nil {
			return nil, err
		}
	}
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
func (m *machine) strangeCommit(ctx context.Context, s *Spec) error {
	v, err := m.lookAt(ctx, s)
	if err != nil {
		return err
	}
	h, err := m.openOf(ctx, s)
	if err != nil || !v.active || v.live != onOverlay || v.mirror != nil || !h.srcWritable {
		return err
	}
	return op.UnknownOutcome(&errDisagree{disagree(s, v, h), h.at(), v.config})
}

// standStill is what is done where the witnesses disagree while the guest is paused
// by the op: nothing is undone, but it may not wait for a person. Both chains are
// equal in the pause, so the definition is made to name the one that the process has
// before it goes on. Other errors are passed on.
func (m *machine) standStill(ctx context.Context, r *op.Run, s *Spec, p pause, err error) error {
	var e *errDisagree
	if !errors.As(err, &e) {
		return err
	}
	chains := map[place][]hv.Image{onSrc: s.srcChain(), onDst: s.dstChain()}
	if s.Overlay != "" {
		chains[onOverlay] = s.overlayChain()
	}
	if _, ours := chains[e.config]; ours && e.at != foreign && e.at != e.config {
		if nameErr := m.hv.SetConfigChain(ctx, s.InstanceID, s.Target, chains[e.at]); nameErr != nil {
			return m.hvError(nameErr)
		}
	}
	if resumeErr := m.resume(ctx, r, s, p); resumeErr != nil {
		return resumeErr
	}
	return err
}

// lookedInPause is sure for a step in the pause of a switch.
func (m *machine) lookedInPause(ctx context.Context, r *op.Run, s *Spec) (*view, error) {
	v, err := m.sure(ctx, s)
	if err != nil {
		return nil, m.standStill(ctx, r, s, toSwitch, err)
	}
	return v, nil
}

// notHeld makes sure, before an image is deleted, that no process of a domain of this
// host has it open, whatever libvirt says of the domain.
func (m *machine) notHeld(ctx context.Context, doms []hv.Domain, path string) error {
	for i := range doms {
		files, err := m.hv.OpenFiles(ctx, doms[i].ID, path)
		switch {
		case errors.Is(err, hv.ErrNotActive):
			continue
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return op.WaitFor(request.WaitHypervisor, fmt.Errorf("see whether instance %s has %s open: %w", doms[i].Name, path, err))
		}
		if len(files) > 0 {
			return op.UnknownOutcome(api.Errorf(api.CodeDstInUse, "%s was to be deleted, but the process of instance %s has it open, of which libvirt knows nothing; nothing was deleted: shut the instance down and start it again, then call again (docs/how-to/recover.md)",
				path, doms[i].Name))
		}
	}
	return nil
}

// mayRelease is asked before the registry is told that the migration is over, so that
// others may have src, dst or the volume.
func (m *machine) mayRelease(ctx context.Context, s *Spec) error {
	if !s.attached() {
		return nil
	}
	_, err := m.sure(ctx, s)
	if !errors.Is(err, hv.ErrNotFound) {
		return err
	}
	// It was undefined: what it had is known by its process alone.
	h, err := m.openOf(ctx, s)
	if err != nil {
		return err
	}
	if none := (held{}); *h != none {
		return op.UnknownOutcome(api.Errorf(api.CodeChainChanged, "instance %s is not defined any more, and %s; nothing was released", s.InstanceName, h))
	}
	return nil
}
