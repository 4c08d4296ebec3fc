// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/internal/connector"
	"github.com/volferry/volferry/daemon/internal/hv"
)

// connecting returns the pools, with their descriptions, that may be able to connect a volume at
// this path. Several pools may share a directory, such as udev's.
func (h *Host) connecting(ctx context.Context, path string) (names []string, known map[string]connector.Pool) {
	dir, name := filepath.Dir(path), filepath.Base(path)
	if !strings.HasPrefix(path, "/dev/") || filepath.Clean(path) != path || connector.CheckVolumeName(name) != nil {
		return nil, nil
	}
	known = map[string]connector.Pool{}
	for _, pool := range slices.Sorted(maps.Keys(h.Connectors)) {
		p, err := h.known(ctx, pool)
		if err == nil && p.Directory == dir && p.Can(connector.VerbConnect) {
			names, known[pool] = append(names, pool), p
		}
	}
	return names, known
}

// Connectable implements hv.Hypervisor.
func (h *Host) Connectable(ctx context.Context, path string) (bool, error) {
	names, _ := h.connecting(ctx, path)
	return len(names) > 0, ctx.Err()
}

// ConnectDevice implements hv.Hypervisor. The first pool that has the volume connects it. The
// connector's answer is then checked.
func (h *Host) ConnectDevice(ctx context.Context, path string) error {
	names, known := h.connecting(ctx, path)
	name := filepath.Base(path)
	var failed error
	for _, pool := range names {
		out, err := h.Run(ctx, pool, connector.Request{Verb: connector.VerbConnect, OpID: opOf(ctx), Volume: name})
		if err == nil {
			_, err = h.volume(pool, known[pool], name, *out.Volume, true)
			return err
		}
		refused := h.refusal(pool, "connect volume "+name, err)
		if failed == nil || errors.Is(failed, hv.ErrNotFound) { // another pool may have the volume, and be unavailable
			failed = refused
		}
	}
	return failed
}

// DisconnectDevice implements hv.Hypervisor. It disconnects the device that is at the path now,
// and no other device that gets its name meanwhile.
func (h *Host) DisconnectDevice(ctx context.Context, path string) error {
	names, known := h.connecting(ctx, path)
	name := filepath.Base(path)
	var failed error
	for _, pool := range names {
		was, err := h.findIn(ctx, pool, known[pool], name)
		switch {
		case errors.Is(err, hv.ErrNotFound):
			was.identity = noIdentity // the session may exist without the volume
		case err != nil:
			failed = errors.Join(failed, err)
			continue
		}
		_, err = h.Run(ctx, pool, connector.Request{Verb: connector.VerbDisconnect, OpID: opOf(ctx), Volume: name, Identity: was.identity})
		if err != nil {
			failed = errors.Join(failed, h.refusal(pool, "disconnect volume "+name, err))
			continue
		}
		// The device may remain because others share it, but it must be the same device.
		left, err := h.Look(path)
		if err == nil && was.identity != noIdentity && left.Identity != was.identity {
			failed = errors.Join(failed, h.untrue(pool, fmt.Errorf("it has disconnected %s, and the kernel has %q at that path, which was %q", path, left.Identity, was.identity)))
		}
	}
	return failed
}

const noIdentity = "none"
