// SPDX-License-Identifier: Apache-2.0

package repair

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/internal/api"
)

// CheckForget refuses to forget an instance if its disks are not its volumes, or registry and
// journal disagree about a location. Afterwards nothing would show that the guest uses the wrong
// image. It changes nothing.
func (e *Env) CheckForget(ctx context.Context, inst api.Instance) error {
	if inst.State == api.InstanceShelvedOffloaded {
		return nil // no host has its domain
	}
	dom, err := e.subject.Domain(ctx, inst.ID)
	if err != nil {
		return api.Errorf(api.CodeHypervisorUnavailable, "cannot forget instance %s: nobody can see whether its disks are where its volumes are: %v; try again once libvirt answers, or give --force", inst.Name, err)
	}
	if dom == nil {
		return nil
	}
	atts, err := e.subject.AtRest(ctx, inst.ID)
	if err != nil {
		return err
	}
	if err := e.recorded(ctx, inst.ID); err != nil {
		return subject.RefusedFor("forget", inst.Name, err)
	}
	if what := subject.Differs(dom, atts); what != "" {
		return api.ForgetRefusal(inst.Name, what)
	}
	return nil
}
