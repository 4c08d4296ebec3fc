// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/internal/medium"
)

// exports implements kind for the exports of NBD servers. The protocol reports neither an export's
// identity nor the server's other clients, and cannot make exports.
type exports struct{ addressed }

func (exports) fingerprint(_ context.Context, path string) (string, error) {
	return "export " + path, nil
}

func (exports) inUse(context.Context, string, rbd.Count) (string, error) { return "", nil }

// mayOpen returns nil if the user may connect to the export's server now: libvirt does not make
// QEMU's user the owner of a socket. Over TCP every user may connect, as far as this host knows.
func (exports) mayOpen(user qemuUser, path string) error {
	e, err := medium.ParseNBD(path)
	if err != nil || e.Socket == "" {
		return err
	}
	return answered("QEMU may connect to "+e.Socket, func() error { return user.mayConnectTo(e.Socket) })
}

func (exports) create(_ context.Context, img hv.Image, _ int64, _ NewFile) error {
	return fmt.Errorf("%s is an NBD export, which only its server makes", img.Path)
}

func (exports) removeMade(context.Context, string, string) error { return nil }

func (e exports) flush(ctx context.Context, path string) error {
	export, err := e.network.Open(ctx, path, true)
	if err != nil {
		return e.cannotReach(path, err)
	}
	defer func() { _ = export.Close() }()
	if err := export.Flush(); err != nil { // also without an answer: the server may have forgotten the error
		return &NotStoredError{path, err}
	}
	return nil
}

func (e exports) answers(ctx context.Context, path string) error {
	return e.cannotReach(path, e.network.Answers(ctx, path))
}

func (exports) fence(context.Context, string) error { return nil }
