// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"errors"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

// RestingOf returns the result of AtRest, or nothing while the registry does not answer.
func (e *Env) RestingOf(ctx context.Context, id string) ([]api.Attachment, error) {
	atts, err := e.AtRest(ctx, id)
	if request.Away(err) || errors.Is(err, context.DeadlineExceeded) {
		return nil, nil
	}
	return atts, err
}

// OnItsDevices refuses to start a guest if the path of one of its volumes leads to another device
// or RBD image. QEMU detects other faults. A silent cluster is asked only once.
func (e *Env) OnItsDevices(ctx context.Context, verb, name string, atts []api.Attachment) error {
	silent := false
	for _, a := range atts {
		witnessed := medium.Of(a.Location.Path).Witnessed
		if silent && !witnessed {
			continue
		}
		if err := e.locations.CheckImages(a.Location); err != nil {
			return image.Prefixed(fmt.Sprintf("cannot %s instance %s: volume %s", verb, name, a.VolumeName), err)
		}
		err := image.CheckDevice(ctx, a.Location, e.images.Fingerprint)
		if api.CodeOf(err) == api.CodeChainChanged {
			return image.Prefixed(fmt.Sprintf("cannot %s instance %s: volume %s", verb, name, a.VolumeName), err)
		}
		silent = silent || err != nil && !witnessed
	}
	return nil
}

// AtRest returns the attachments of an instance's volumes that do not move.
func (e *Env) AtRest(ctx context.Context, id string) ([]api.Attachment, error) {
	atts, err := e.registry.Attachments(ctx, "", id)
	if err != nil {
		return nil, err
	}
	open, err := e.migrations.List(ctx, false)
	if err != nil {
		return nil, err
	}
	return api.NotMoving(atts, open), nil
}
