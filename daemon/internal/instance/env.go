// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"errors"
	"log/slog"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/op"
)

// Host is this host as the registry knows it.
type Host struct {
	ID    string
	Name  string
	Epoch int64
}

// named says whether a document names this host, which it does by name or by id.
func (h Host) named(name string) bool { return name != "" && (name == h.ID || name == h.Name) }

// stepEnv is what the steps share: the ports, and who this host is.
type stepEnv struct {
	Ports
	// host answers for this host once it was told who it is, registry away or not.
	host func(context.Context) (Host, error)
	log  *slog.Logger
	// saveDir is Config.SaveDir, boot Config.BootID.
	saveDir, boot string
	// submit stores and starts an op that follows another one.
	submit func(context.Context, op.Op) error
	// active are the ops that are not finished.
	active func() []op.Status
}

// stepReport tells the registry what the op has made of the instance, so that
// whoever waited for the op finds the registry knowing it. Libvirt that has died
// meanwhile is waited for: without it this host knows nothing to tell.
func (e *stepEnv) stepReport() op.Step {
	return op.Step{Name: stepNameReport, Do: func(ctx context.Context, _ *op.Run) error {
		return e.reported(ctx)
	}}
}

// reported tells the registry of this host's instances. If libvirt does not answer, the
// op waits for it.
func (e *stepEnv) reported(ctx context.Context) error {
	if err := e.Report(ctx); errors.Is(err, hv.ErrUnavailable) {
		return request.HV(err)
	}
	return nil
}
