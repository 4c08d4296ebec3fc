// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// CheckForget refuses to forget an instance whose disks are not where its volumes are: nothing
// else says that its guest is on the wrong image. It changes nothing.
func (e *Env) CheckForget(ctx context.Context, inst api.Instance) error {
	if inst.State == api.InstanceShelvedOffloaded {
		return nil // no host has a domain of it
	}
	dom, err := e.domain(ctx, inst.ID)
	if err != nil {
		return api.Errorf(api.CodeHypervisorUnavailable, "cannot forget instance %s: nobody can see whether its disks are where its volumes are: %v; try again once libvirt answers, or give --force", inst.Name, err)
	}
	if dom == nil {
		return nil
	}
	what, err := e.differs(ctx, inst.ID, dom)
	if err == nil && what != "" {
		err = api.ForgetRefusal(inst.Name, what)
	}
	return err
}

// differs says how the disks of an instance differ from its volumes, but for those that move; ""
// if they match.
func (e *Env) differs(ctx context.Context, id string, dom *hv.Domain) (string, error) {
	atts, err := e.atRest(ctx, id)
	if err != nil {
		return "", err
	}
	return Differs(dom, atts), nil
}

// atRest returns the attachments of an instance whose volumes do not move.
func (e *Env) atRest(ctx context.Context, id string) ([]api.Attachment, error) {
	atts, err := e.Registry.Attachments(ctx, "", id)
	if err != nil {
		return nil, err
	}
	open, err := e.Migrations.List(ctx, false)
	if err != nil {
		return nil, err
	}
	return api.NotMoving(atts, open), nil
}
