// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"fmt"

	"github.com/volferry/volferry/internal/shell"
)

// MaxPoolUses limits the uses of a pool that a host reports.
const MaxPoolUses = 64

// PoolUse is a file below a pool's path that is no attached volume, and that a domain, adopted or
// not, needs for its start, such as NVRAM or the image of a CD-ROM. Or it is the image of a volume
// outside the pool, with a path that leads into the pool by a symbolic link.
type PoolUse struct {
	Host   string `json:"host,omitempty"`
	Domain string `json:"domain,omitempty"`
	// Volume is the name of the volume outside the pool; Domain and What are empty then.
	Volume string `json:"volume,omitempty"`
	// What names the disk (cdrom sda) or the element of the definition (nvram).
	What string `json:"what,omitempty"`
	Path string `json:"path,omitempty"`
	// Unknown is why the uses of Domain, or of the host if Domain is empty, are unknown; What and
	// Path are empty then.
	Unknown string `json:"unknown,omitempty"`
}

// Text returns a sentence about the use, without a full stop.
func (u *PoolUse) Text() string {
	host := ""
	if u.Host != "" {
		host = " of host " + u.Host
	}
	switch {
	case u.Volume != "":
		return fmt.Sprintf("volume %s%s is not in the pool, and its image %s leads there by a symbolic link. Next: %s", u.Volume, host, u.Path,
			shell.Line("volferryctl", "volume", "migrate", u.Volume, "--to-pool", "POOL"))
	case u.Unknown != "" && u.Domain != "":
		return fmt.Sprintf("it is not known whether domain %s%s needs a file there: %s", u.Domain, host, u.Unknown)
	case u.Unknown != "":
		return fmt.Sprintf("it is not known whether domains%s need files there: %s", host, u.Unknown)
	}
	return fmt.Sprintf("domain %s%s has %s as its %s", u.Domain, host, u.Path, u.What)
}

// Compare orders uses by all their fields, beginning with the host.
func (u PoolUse) Compare(other PoolUse) int {
	return cmp.Or(cmp.Compare(u.Host, other.Host), cmp.Compare(u.Domain, other.Domain), cmp.Compare(u.Volume, other.Volume),
		cmp.Compare(u.Path, other.Path), cmp.Compare(u.What, other.What), cmp.Compare(u.Unknown, other.Unknown))
}
