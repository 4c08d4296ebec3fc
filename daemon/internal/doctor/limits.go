// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"

	"github.com/volferry/volferry/internal/api"
)

// limits reports guests with a write limit that a move has left.
func (d *Doctor) limits() api.Check {
	const name = "limits"
	left := d.Limited()
	if len(left) == 0 {
		return ok(name, "no move has left a limit on what a guest may write")
	}
	return api.Check{
		Name: name, Status: "warn", Message: strings.Join(left, "; "),
		Advice: "Volferry takes it off by itself once libvirt and its journal answer: see the other lines; virsh blkdeviotune GUEST DISK shows it",
	}
}
