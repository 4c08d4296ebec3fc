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

// Connector is the part of a hypervisor that gives volumes of a target their devices.
type Connector interface {
	Connectable(ctx context.Context, path string) (bool, error)
	ConnectDevice(ctx context.Context, path string) error
	DisconnectDevice(ctx context.Context, path string) error
}

// mayConnect reports whether a connected device may be at the path.
func mayConnect(path string) bool { return strings.HasPrefix(path, "/dev/") }

// Connectable reports whether what is at path is there only while it is connected (Connect).
func Connectable(ctx context.Context, c Connector, path string) (bool, error) {
	if !mayConnect(path) {
		return false, nil
	}
	return c.Connectable(ctx, path)
}

// Connect makes what is at path be there, if a target has it. It may be repeated. What begins the
// message of a refusal, as in "cannot attach volume x".
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

// Disconnect ends what Connect has begun, once nobody on this host needs it any more. What cannot
// be disconnected stays connected, which keeps nobody from anything: the log has it.
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
