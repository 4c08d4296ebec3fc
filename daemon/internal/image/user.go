// SPDX-License-Identifier: Apache-2.0

package image

import (
	"os/user"
	"strconv"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/sandbox"
)

// UserName returns the name of a user, or its number if it has no name.
func UserName(who hv.ProcessUser) string {
	name := strconv.FormatUint(uint64(who.UID), 10)
	if u, err := user.LookupId(name); err == nil {
		return u.Username
	}
	return name
}

func userOf(who hv.ProcessUser) sandbox.User {
	return sandbox.User{UID: int(who.UID), GID: int(who.GID), Groups: groupsOf(who)}
}

func groupsOf(who hv.ProcessUser) []int {
	groups := []int{int(who.GID)}
	u, err := user.LookupId(strconv.FormatUint(uint64(who.UID), 10))
	if err != nil {
		return groups
	}
	ids, err := u.GroupIds()
	if err != nil {
		return groups
	}
	for _, text := range ids {
		if id, err := strconv.Atoi(text); err == nil {
			groups = append(groups, id)
		}
	}
	return groups
}
