// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// kinds says what a libvirt error code means whatever the call was.
var kinds = map[golibvirt.ErrorNumber]error{
	golibvirt.ErrNoDomain:             hv.ErrNotFound,
	golibvirt.ErrNoStoragePool:        hv.ErrNotFound,
	golibvirt.ErrNoStorageVol:         hv.ErrNotFound,
	golibvirt.ErrStorageVolExist:      hv.ErrExists,
	golibvirt.ErrBlockCopyActive:      hv.ErrBusy,
	golibvirt.ErrOperationTimeout:     hv.ErrBusy, // another job holds the domain
	golibvirt.ErrResourceBusy:         hv.ErrBusy,
	golibvirt.ErrNoSupport:            hv.ErrUnsupported,
	golibvirt.ErrConfigUnsupported:    hv.ErrUnsupported,
	golibvirt.ErrOperationUnsupported: hv.ErrUnsupported,
	golibvirt.ErrArgumentUnsupported:  hv.ErrUnsupported,
	golibvirt.ErrRPC:                  hv.ErrUnavailable,
	golibvirt.ErrNoConnect:            hv.ErrUnavailable,
	golibvirt.ErrInvalidConn:          hv.ErrUnavailable,
}

// classify wraps an error of a call in the hv error that it stands for, and
// keeps libvirt's own message. What libvirt did not say itself (EINVAL and
// ErrInterrupted of go-libvirt's socket, an answer that cannot be decoded)
// leaves the outcome unknown: ErrUnavailable.
func classify(err error) error {
	if err == nil {
		return nil
	}
	kind := hv.ErrUnavailable
	var answer golibvirt.Error // code and message are all that go-libvirt passes on
	switch {
	case errors.As(err, &answer):
		kind = kinds[golibvirt.ErrorNumber(answer.Code)]
	case errors.Is(err, golibvirt.ErrUnsupported):
		kind = hv.ErrUnsupported
	}
	if kind == nil {
		return err
	}
	return fmt.Errorf("%w: %w", kind, err)
}

// said tells whether libvirt answered with this code.
func said(err error, code golibvirt.ErrorNumber) bool {
	var answer golibvirt.Error
	return errors.As(err, &answer) && golibvirt.ErrorNumber(answer.Code) == code
}

// explain finds out what an ambiguous refusal of a call on a live disk means.
// libvirt answers "invalid argument" for a disk that is not there and
// "operation invalid" for a domain that is off, but both for other things too.
func (c *Conn) explain(ctx context.Context, id, target string, err error) error {
	if !said(err, golibvirt.ErrInvalidArg) && !said(err, golibvirt.ErrOperationInvalid) {
		return err
	}
	dom, readErr := c.Domain(ctx, id)
	switch {
	case readErr != nil:
		return fmt.Errorf("%w; and then: %w", err, readErr)
	case !dom.State.Active():
		return fmt.Errorf("%w: %w", hv.ErrNotActive, err)
	case target != "" && dom.LiveDisk(target) == nil:
		return fmt.Errorf("%w: %w", hv.ErrNotFound, err)
	}
	return err
}
