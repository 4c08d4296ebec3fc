// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/libvirt/qmp"
	"github.com/volferry/volferry/daemon/internal/nbd"
	"github.com/volferry/volferry/internal/retry"
)

// QEMU shows the content of a bitmap only to the clients of an export. A process has one NBD
// server, which a backup may use too.
const (
	exportName = "volferry-bitmap"
	socketName = "volferry-nbd.sock"
	// exportPoll is how often awaitNoExport checks for exports, for up to exportTimeout.
	exportPoll    = 5 * time.Millisecond
	exportTimeout = 10 * time.Second
)

type export struct {
	ID   string `json:"id"`
	Node string `json:"node-name"`
}

func (t *tracker) DirtyUnits(ctx context.Context, id, target, name string) ([]hv.DirtyRange, error) {
	const what = "read a bitmap of"
	leave, err := t.reading.enter(ctx, "the bitmaps of domain "+id)
	if err != nil {
		return nil, err
	}
	defer leave()
	disk, err := t.tracked(ctx, what, id, target)
	if err != nil {
		return nil, err
	}
	err = disk.has(name)
	if err == nil && disk.bitmap(name).Recording {
		err = fmt.Errorf("bitmap %s still records", name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", what, nameOf(id, target), err)
	}
	dirty, err := t.readExported(ctx, what, id, target, disk, name)
	// Always remove the export and the server from the process.
	return dirty, errors.Join(err, t.endExports(context.WithoutCancel(ctx), what, id, target))
}

// CanTrack implements hv.DirtyTracker. It tries to have QEMU listen at the socket: a security
// profile, for example, may prevent that.
func (t *tracker) CanTrack(ctx context.Context, id, target string) error {
	const what = "see whether to track writes of"
	leave, err := t.reading.enter(ctx, "the bitmaps of domain "+id)
	if err != nil {
		return err
	}
	defer leave()
	if _, err := t.tracked(ctx, what, id, target); err != nil {
		return err
	}
	if err := t.endExports(ctx, what, id, target); err != nil {
		return err
	}
	_, err = t.listen(ctx, what, id, target)
	return errors.Join(err, t.endExports(context.WithoutCancel(ctx), what, id, target))
}

func (t *tracker) listen(ctx context.Context, what, id, target string) (socket string, err error) {
	socket, err = t.exportSocket(ctx, id)
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", what, nameOf(id, target), err)
	}
	err = t.calls.monitor(ctx, what, id, target, qmp.Command{Execute: "nbd-server-start", Arguments: map[string]any{
		"addr": map[string]any{"type": "unix", "data": map[string]string{"path": socket}},
	}}, nil)
	if refused := (*qmp.RefusedError)(nil); errors.As(err, &refused) && strings.Contains(refused.Desc, "already running") {
		err = fmt.Errorf("%w: %w", hv.ErrBusy, err)
	}
	return socket, err
}

func (t *tracker) readExported(ctx context.Context, what, id, target string, disk *trackedDisk, name string) ([]hv.DirtyRange, error) {
	if err := t.endExports(ctx, what, id, target); err != nil {
		return nil, err
	}
	socket, err := t.listen(ctx, what, id, target)
	if err != nil {
		return nil, err
	}
	err = t.calls.monitor(ctx, what, id, target, qmp.Command{Execute: "block-export-add", Arguments: map[string]any{
		"type": "nbd", "id": exportName, "node-name": disk.node, "name": exportName, "bitmaps": []string{name}, "writable": false,
	}}, nil)
	if err != nil {
		return nil, err
	}
	ranges, sizeBytes, err := nbd.DirtyRanges(ctx, socket, exportName, name)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", what, nameOf(id, target), err)
	}
	var dirty []hv.DirtyRange
	for _, r := range ranges {
		dirty = append(dirty, hv.DirtyRange(r))
	}
	// A bitmap that no longer records does not change: both counts must agree.
	unit := disk.bitmap(name).Granularity
	if got, want := dirtyBytes(dirty, unit, sizeBytes), disk.bitmap(name).Count; got != want {
		return nil, fmt.Errorf("%s %s: bitmap %s has %d dirty bytes, and %d were read", what, nameOf(id, target), name, want, got)
	}
	return dirty, nil
}

// dirtyBytes returns the bytes of the units in these ranges; a partial last unit of a disk counts
// as whole.
func dirtyBytes(dirty []hv.DirtyRange, unit, sizeBytes int64) (sum int64) {
	for _, r := range dirty {
		sum += r.Bytes
		if r.Offset+r.Bytes == sizeBytes && sizeBytes%unit != 0 {
			sum += unit - sizeBytes%unit
		}
	}
	return sum
}

// endExports removes Volferry's exports and server that an earlier read left in the process. It
// returns ErrBusy if the server is another program's.
func (t *tracker) endExports(ctx context.Context, what, id, target string) error {
	socket, err := t.exportSocket(ctx, id)
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, nameOf(id, target), err)
	}
	left, err := t.exports(ctx, what, id, target)
	if err != nil {
		return err
	}
	for _, e := range left {
		if e.ID != exportName {
			return fmt.Errorf("%s %s: %w: QEMU exports %s for somebody else, perhaps a backup", what, nameOf(id, target), hv.ErrBusy, e.ID)
		}
		err := t.calls.monitor(ctx, what, id, target, qmp.Command{Execute: "block-export-del", Arguments: map[string]string{"id": e.ID, "mode": "hard"}}, nil)
		if err != nil {
			return err
		}
	}
	if len(left) > 0 {
		if err := t.awaitNoExport(ctx, what, id, target); err != nil {
			return err
		}
	}
	// The socket exists for as long as the server.
	if _, err := os.Lstat(socket); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	err = t.calls.monitor(ctx, what, id, target, qmp.Command{Execute: "nbd-server-stop"}, nil)
	var refused *qmp.RefusedError
	if errors.As(err, &refused) { // there is no server: an earlier process left the socket
		return removeSocket(ctx, socket)
	}
	return err
}

func removeSocket(ctx context.Context, path string) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("%w: somebody listens at %s", hv.ErrBusy, path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// awaitNoExport waits until Volferry's exports are gone: QEMU ends them when their clients have
// disconnected.
func (t *tracker) awaitNoExport(ctx context.Context, what, id, target string) error {
	gone, err := retry.Poll(ctx, exportPoll, exportTimeout, func() (bool, error) {
		left, err := t.exports(ctx, what, id, target)
		return len(left) == 0, err
	})
	if err == nil && !gone {
		err = fmt.Errorf("%s %s: %w: an export does not end", what, nameOf(id, target), hv.ErrBusy)
	}
	return err
}

func (t *tracker) exports(ctx context.Context, what, id, target string) (all []export, err error) {
	err = t.calls.monitor(ctx, what, id, target, qmp.Command{Execute: "query-block-exports"}, &all)
	return all, err
}

// exportSocket returns a path where the process of a domain can listen, in a directory that
// libvirt makes for the process, and removes at its end.
func (t *tracker) exportSocket(ctx context.Context, id string) (string, error) {
	_, dom, err := t.domains.find(ctx, id)
	if err != nil {
		return "", err
	}
	dirs, err := t.processDirs(dom)
	if err != nil {
		return "", err
	}
	if len(dirs) != 1 {
		return "", fmt.Errorf("libvirt has %d directories of the domain in %s, and one was expected", len(dirs), t.library.state)
	}
	return filepath.Join(dirs[0], socketName), nil
}

// processDirs returns the directories that libvirt names by the number and the shortened name of
// the domain.
func (t *tracker) processDirs(dom golibvirt.Domain) ([]string, error) {
	if dom.ID <= 0 {
		return nil, hv.ErrNotActive
	}
	return filepath.Glob(filepath.Join(t.library.state, fmt.Sprintf("domain-%d-*", dom.ID)))
}
