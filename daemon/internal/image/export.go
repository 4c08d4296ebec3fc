// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/nbd"
	"github.com/volferry/volferry/internal/api"
)

// exportBytes asks an NBD server for the size of an export. A server that is away says nothing
// about what it has: that is never ErrAbsent.
func exportBytes(ctx context.Context, dial nbd.Dial, path string, format api.Format) (int64, error) {
	if format != api.FormatRaw {
		return 0, api.Errorf(api.CodeUnsupportedDisk, "%s has the format %s, and an NBD export can only be raw here", path, format)
	}
	e, err := api.ParseNBD(path)
	if err != nil {
		return 0, err
	}
	export, err := nbd.Open(ctx, dial, e)
	if err != nil {
		return 0, api.Errorf(api.CodeStateForbidden, "%s cannot be used: %v", path, err)
	}
	return export.SizeBytes(), export.Close()
}

// mayConnect says whether a user may connect to the server of an export: libvirt gives nobody a
// socket. Over TCP everybody may, as far as this host knows.
func mayConnect(who hv.ProcessUser, path string) error {
	e, err := api.ParseNBD(path)
	if err != nil {
		return err
	}
	if e.Server != "" {
		return nil
	}
	err = asUser(who, func() error { return unix.Faccessat(unix.AT_FDCWD, e.Socket, unix.W_OK, unix.AT_EACCESS) })
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return api.Errorf(api.CodePermissionDenied, "QEMU runs as %s here and may not connect to %s; let it in (setfacl -m u:%[1]s:rw %[2]s)", UserName(who), e.Socket)
}
