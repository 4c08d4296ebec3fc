// SPDX-License-Identifier: Apache-2.0

package process

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/volferry/volferry/internal/shell"
)

// Any user may start any number of processes that claim to be a domain, with any number of open
// files. These limits keep the list of them short and quick to make, without hiding an open file.
const (
	// claimsOfUser is how many claims of one user are listed in full: two show that there are
	// several.
	claimsOfUser = 2
	// listed is how many claims and descriptors are listed in full. A later claim is listed only
	// with open files that no earlier claim has.
	listed = 2000
	// maxDescriptors is how many descriptors are read. So many take seconds; a QEMU process has
	// some hundreds.
	maxDescriptors = 1 << 20
)

// byUser compares claims by user id. Root's claims come first. Service users come before users
// that other users may take freely (subuid(5)), so that these do not push a true claim out of the
// list.
func byUser(a, b Claim) int { return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.PID, b.PID)) }

// fewer shortens the list as Claims describes.
func fewer(claims []Claim) (kept []Claim) {
	type opened struct {
		image    int
		writable bool
	}
	shown := map[opened]bool{}
	ofUser := map[uint32]int{}
	room := listed
	for _, c := range claims {
		if size := 1 + len(c.Files); ofUser[c.UID] < claimsOfUser && size <= room {
			ofUser[c.UID]++
			room -= size
		} else if c.Files = slices.DeleteFunc(c.Files, func(f File) bool { return shown[opened{f.Image, f.Writable}] }); len(c.Files) == 0 {
			continue
		}
		for _, f := range c.Files {
			shown[opened{f.Image, f.Writable}] = true
		}
		kept = append(kept, c)
	}
	return kept
}

type descriptors struct {
	left int
	of   map[uint32]int
}

func (d *descriptors) take(c *Claim, n int) error {
	d.left -= n
	d.of[c.UID] += n
	if d.left >= 0 {
		return nil
	}
	most := c.UID
	for uid, n := range d.of {
		if n > d.of[most] || n == d.of[most] && uid < most {
			most = uid
		}
	}
	return fmt.Errorf("the processes that name the UUID of the domain have too many open files to look at, most of them (%d) of user %d; `%s` lists that user's processes: end those that are no guest of libvirt",
		d.of[most], most, shell.Line("pgrep", "-a", "-u", strconv.FormatUint(uint64(most), 10), "qemu"))
}
