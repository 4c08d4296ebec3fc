// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// recording is a move, and what is known of it.
type recording struct {
	move
	subject
	m api.Migration // as it ended
}

// domainXML is what counts here of a definition.
type domainXML struct {
	Disks []struct {
		Driver struct {
			Type string `xml:"type,attr"`
		} `xml:"driver"`
		Source struct {
			File string `xml:"file,attr"`
		} `xml:"source"`
		Backing *backingXML `xml:"backingStore"`
	} `xml:"devices>disk"`
}

type backingXML struct {
	Format struct {
		Type string `xml:"type,attr"`
	} `xml:"format"`
	Source struct {
		File string `xml:"file,attr"`
	} `xml:"source"`
	Backing *backingXML `xml:"backingStore"`
}

// image is one image of a chain.
type image struct{ path, format string }

// chain is the chain that the definition names of the first disk of a domain.
func (h *host) chain(ctx context.Context, instance string) ([]image, error) {
	text, err := os.ReadFile(filepath.Join(h.definitions(), instance+".xml"))
	if err != nil {
		return nil, fmt.Errorf("the definition: %w", err)
	}
	var d domainXML
	if err := xml.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("the definition, of %d bytes: %w", len(text), err)
	}
	if len(d.Disks) != 1 {
		return nil, fmt.Errorf("the definition has %d disks", len(d.Disks))
	}
	top := d.Disks[0]
	images := []image{{top.Source.File, top.Driver.Type}}
	b := top.Backing
	for ; b != nil && b.Source.File != ""; b = b.Backing {
		images = append(images, image{b.Source.File, b.Format.Type})
	}
	for b == nil { // the definition leaves the rest to the headers
		below, err := headerBacking(ctx, images[len(images)-1])
		if err != nil || below == (image{}) {
			return images, err
		}
		images = append(images, below)
	}
	return images, nil
}

// headerBacking is what the header of an image says that it is over, zero for nothing.
func headerBacking(ctx context.Context, m image) (below image, err error) {
	if m.format == "raw" {
		return below, nil
	}
	out, err := exec.CommandContext(ctx, "qemu-img", "info", "-f", m.format, "--output=json", m.path).Output()
	if err != nil {
		return below, fmt.Errorf("%s cannot be read as %s: %w", m.path, m.format, err)
	}
	var info struct {
		Backing string `json:"full-backing-filename"`
		Format  string `json:"backing-filename-format"`
	}
	err = json.Unmarshal(out, &info)
	return image{info.Backing, info.Format}, err
}

// assertChain claims that the images of a chain are there, and that each names the one below.
func assertChain(ctx context.Context, chain []image) error {
	for i, m := range chain {
		if info, err := os.Stat(m.path); err != nil || info.Size() == 0 {
			return fmt.Errorf("%s, which the definition names, is not there or is empty: %w", m.path, err)
		}
		if m.format == "raw" {
			if i != len(chain)-1 {
				return fmt.Errorf("raw %s has something below it", m.path)
			}
			continue
		}
		got, err := headerBacking(ctx, m)
		if err != nil {
			return err
		}
		below := image{}
		if i+1 < len(chain) {
			below = chain[i+1]
		}
		if got != below {
			return fmt.Errorf("%s is over %v, and the definition says %v", m.path, got, below)
		}
	}
	return nil
}

// place is which of the places of a move a chain is.
func (r *recording) place(h *host, chain []image) (place, error) {
	is := func(chain []image, l api.Location) bool {
		below := l.Backing.Images()
		return len(chain) == 1+len(below) && chain[0].path == l.Path &&
			!slices.ContainsFunc(below, func(b api.BaseImage) bool { return !slices.Contains(chain, image{b.Path, string(b.Format)}) })
	}
	switch {
	case filepath.Dir(chain[0].path) == h.overlays() && len(chain) > 1 && is(chain[1:], r.m.Src):
		return onOverlay, nil
	case is(chain, r.m.Src):
		return onSrc, nil
	case is(chain, r.m.Dst):
		return onDst, nil
	}
	return "", fmt.Errorf("the definition names a chain that is none of the move: %v", chain)
}

// look holds what is mounted, which is as it was at a moment, against what must be there. It
// changes nothing but what the kernel and SQLite recover by themselves. where is how far the
// journal is.
func (h *host) look(ctx context.Context, r *recording, at time.Time) (where string, err error) {
	j, err := h.dump.read(h.journal())
	if err != nil {
		return "", fmt.Errorf("the journal: %w", err)
	}
	return j.where(), h.lookBy(ctx, r, &j, at)
}

func (h *host) lookBy(ctx context.Context, r *recording, j *journal, at time.Time) error {
	src, dst := image{r.m.Src.Path, string(r.m.Src.Format)}, image{r.m.Dst.Path, string(r.m.Dst.Format)}
	// The registry frees src with this, and cancelled frees dst: before it is known to be done
	// either may be the volume.
	done := j.step("publish_completed")
	if r.instance == "" {
		return errors.Join(
			onlyIf(done != succeeded, func() error { return holds(ctx, r, src, at) }),
			onlyIf(done != "", func() error { return holds(ctx, r, dst, at) }),
		)
	}
	chain, err := h.chain(ctx, r.instance)
	if err != nil {
		return err
	}
	if err := assertChain(ctx, chain); err != nil {
		return err
	}
	named, err := r.place(h, chain)
	if err != nil {
		return err
	}
	if may := j.mayName(); !slices.Contains(may, named) {
		return fmt.Errorf("the definition names %s, and by the journal (%s) it has to be one of %v", named, j.where(), may)
	}
	if done != "" && named != onDst {
		return fmt.Errorf("the registry may have freed src, and the definition names %s", named)
	}
	return holds(ctx, r, chain[0], at)
}

func onlyIf(condition bool, claim func() error) error {
	if !condition {
		return nil
	}
	return claim()
}

// holds claims that an image has all that was flushed at a moment.
func holds(ctx context.Context, r *recording, m image, at time.Time) error {
	report, err := lab.Check(ctx, lab.Volume{Path: m.path, Format: m.format}, r.history(at), lab.PowerWasCutAt(at))
	if err == nil {
		err = report.Err()
	}
	if err != nil {
		return fmt.Errorf("what was flushed is not in %s: %w", filepath.Base(m.path), err)
	}
	return nil
}

// until is a history as it was known at a moment.
func until(h *lab.History, at time.Time) *lab.History {
	c := *h
	c.Acks = slices.DeleteFunc(slices.Clone(h.Acks), func(a lab.Ack) bool { return a.HostTime.After(at) })
	c.Sessions = slices.Clone(h.Sessions)
	left := uint64(len(c.Acks))
	for i := range c.Sessions {
		s := &c.Sessions[i]
		if s.Acked > left {
			s.Acked, s.Ended = left, false
		}
		left -= min(left, s.Acked)
	}
	return &c
}
