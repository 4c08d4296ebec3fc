// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/volferry/volferry/test/bench/meter"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

// The pools.
const srcPool, dstPool = "src", "dst"

// host is a host for one measurement.
type host struct {
	*site.Site

	pools map[string]string // their directories
	made  int               // domains, for their names
}

// newHost makes a host below dir, which is the directory of temporary files if it is empty. It is
// to be ended even where there is an error.
func newHost(ctx context.Context, bin, dir string) (h *host, end func() error, err error) {
	h = &host{pools: map[string]string{}}
	own, err := os.MkdirTemp(dir, "vfgrow-")
	if err != nil {
		return h, func() error { return nil }, fmt.Errorf("make directory: %w", err)
	}
	end = func() error {
		var err error
		if h.Site != nil {
			err = h.Close()
		}
		return errors.Join(err, os.RemoveAll(own))
	}
	if h.Site, err = site.Start(ctx, own, bin); err != nil {
		return h, end, err
	}
	for _, pool := range []string{srcPool, dstPool} {
		h.pools[pool] = filepath.Join(h.Libvirtd.Dir, pool)
		if err := h.Libvirtd.DirPool(ctx, pool, h.pools[pool]); err != nil {
			return h, end, err
		}
	}
	// A new libvirtd asks QEMU for some seconds what it can do, for the first who wants to know.
	_, err = h.Libvirtd.Virsh(ctx, "capabilities")
	return h, end, err
}

// measured is what do costs.
func (h *host) measured(do func() error) (p point, err error) {
	pid := h.DaemonPID()
	if err := meter.ResetPeak(pid); err != nil {
		return p, err
	}
	before, err := meter.FamilyTime(pid)
	if err != nil {
		return p, err
	}
	begin := time.Now()
	if err := do(); err != nil {
		return p, err
	}
	p.Seconds = time.Since(begin).Seconds()
	after, err := meter.FamilyTime(pid)
	if err != nil {
		return p, err
	}
	p.CPUSeconds = (after - before).Seconds()
	return p, h.memory(&p)
}

func (h *host) memory(p *point) error {
	m, err := meter.MemoryOf(h.DaemonPID())
	p.ResidentBytes, p.PeakBytes = m.Resident, m.Peak
	return err
}

// makeVolume makes a raw image in pool src, and a volume of it that no guest has.
func (h *host) makeVolume(ctx context.Context, name string, bytes int64, percent uint64) error {
	path := filepath.Join(h.pools[srcPool], name)
	if err := lab.MakeVolume(ctx, lab.Volume{Path: path, Format: "raw"}, bytes, lab.Fill{Seed: 1, Percent: percent}); err != nil {
		return err
	}
	_, err := h.Ctl(ctx, "volume", "adopt", name, "--path", path, "--format", "raw")
	return err
}

// adoptInstance makes an instance with so many disks, and returns its name.
func (h *host) adoptInstance(ctx context.Context, disks int, bytes int64) (string, error) {
	h.made++
	name := fmt.Sprintf("many%d", h.made)
	var files []string
	for i := range disks {
		file := filepath.Join(h.pools[srcPool], fmt.Sprintf("%s-%d", name, i))
		if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, bytes)); err != nil {
			return "", fmt.Errorf("make disk: %w", err)
		}
		files = append(files, file)
	}
	if err := h.Libvirtd.DefineWithDisks(ctx, name, files...); err != nil {
		return "", err
	}
	_, err := h.Ctl(ctx, "instance", "adopt", name)
	return name, err
}
