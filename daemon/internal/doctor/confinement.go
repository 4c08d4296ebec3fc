// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
)

// maxNamed is the number of guests that a line names.
const maxNamed = 10

// confinements reports which security module confines which running guest, as the kernel has it.
// libvirt leaves a guest unconfined if its definition asks for that.
func (d *Doctor) confinements(ctx context.Context) []api.Check {
	const name = "security"
	doms, err := d.HV.Domains(ctx)
	if err != nil {
		return []api.Check{unknownConfinement("the running guests", err)}
	}
	out, guests := []api.Check{}, map[string][]string{}
	for i := range doms {
		if !doms[i].State.Active() {
			continue
		}
		is, err := d.HV.Confinement(ctx, doms[i].ID)
		if errors.Is(err, hv.ErrNotActive) || errors.Is(err, hv.ErrNotFound) {
			continue // it has ended
		}
		if errors.Is(err, hv.ErrUnavailable) { // it would be the answer for each guest
			return []api.Check{unknownConfinement("the running guests", errors.New(hv.Unanswered(err)))}
		}
		if err != nil {
			out = append(out, unknownConfinement("instance "+doms[i].Name, err))
			continue
		}
		guests[is.Module()] = append(guests[is.Module()], doms[i].Name)
	}
	for _, module := range []string{"AppArmor", "SELinux", ""} {
		if of := guests[module]; len(of) > 0 {
			out = append(out, ok(name, fmt.Sprintf("%s %s: %s", confines(module), humanize.Count(len(of), "running guest"), some(of))))
		}
	}
	return out
}

func confines(module string) string {
	switch {
	case module == "":
		return "no security module confines"
	case module == "SELinux" && isPermissive():
		return "SELinux is permissive, and does not confine"
	}
	return module + " confines"
}

func unknownConfinement(what string, err error) api.Check {
	return api.Check{
		Name: "security", Status: "warn", Message: fmt.Sprintf("it is not known what confines %s: %v", what, err),
		Advice: "run doctor again when libvirt answers, and the process of each guest can be found",
	}
}

// some lists the first names in their order.
func some(names []string) string {
	slices.Sort(names)
	if more := len(names) - maxNamed; more > 0 {
		return fmt.Sprintf("%s, and %d more", strings.Join(names[:maxNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}
