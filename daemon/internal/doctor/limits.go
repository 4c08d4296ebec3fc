// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"

	"github.com/volferry/volferry/internal/api"
)

func (d *Doctor) limits() api.Check {
	const name = "limits"
	left := d.Limited()
	if len(left) == 0 {
		return ok(name, "no guest has a write limit of a move")
	}
	return api.Check{
		Name: name, Status: "warn", Message: strings.Join(left, "; "),
		Advice: "Volferry removes the limit by itself once libvirt and the journal answer: see their lines; virsh blkdeviotune GUEST DISK shows the limit",
	}
}
