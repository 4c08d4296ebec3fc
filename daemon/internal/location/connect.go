// SPDX-License-Identifier: Apache-2.0

package location

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// Connector connects the volumes of storage targets to this host.
type Connector interface {
	Connectable(ctx context.Context, path string) (bool, error)
	ConnectDevice(ctx context.Context, path string) error
	DisconnectDevice(ctx context.Context, path string) error
}

func mayConnect(path string) bool { return strings.HasPrefix(path, "/dev/") }

// Connectable reports whether the volume at path has a device only while it is connected (Connect).
func Connectable(ctx context.Context, c Connector, path string) (bool, error) {
	if !mayConnect(path) {
		return false, nil
	}
	return c.Connectable(ctx, path)
}

// Connect connects the device at path, if a target has it; otherwise it does nothing. It may be
// repeated. verdict begins the message of a refusal, as in "cannot attach volume x".
func Connect(ctx context.Context, c Connector, path, verdict string) error {
	if !mayConnect(path) {
		return nil
	}
	err := c.ConnectDevice(ctx, path)
	if errors.Is(err, hv.ErrNotFound) {
		return api.Errorf(api.CodeNotFound, "%s: %v", verdict, err)
	}
	return err
}

// Disconnect undoes Connect. Call it only when nothing on this host needs the device any more. It
// only logs a failure, which is harmless.
func Disconnect(ctx context.Context, c Connector, path string) error {
	if !mayConnect(path) {
		return nil
	}
	err := c.DisconnectDevice(ctx, path)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		slog.WarnContext(ctx, "a device is left connected", "path", path, "err", err)
	}
	return nil
}
