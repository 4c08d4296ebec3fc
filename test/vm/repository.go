// SPDX-License-Identifier: Apache-2.0

package vm

import "github.com/volferry/volferry/test/vm/boot"

// Repository returns a Config with the repository, the directory top of this host, at /source, and
// with a directory of programs at /programs. Env has what package lab needs: its cache, and the
// program "guest" of its guests.
func Repository(top, programs string) Config {
	return Config{
		Shares: []Share{
			{Host: top, Share: boot.Share{Tag: "source", Path: "/source"}},
			{Host: programs, Share: boot.Share{Tag: "programs", Path: "/programs"}},
		},
		Env: []string{"VOLFERRY_LAB_CACHE=/source/.cache/lab", "VOLFERRY_LAB_GUEST=/programs/guest"},
		Dir: "/source",
	}
}
