// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/lab/workload"
)

// writer is what a running guest does.
type writer struct {
	name string
	load *lab.Load // nil: nothing
	mix  workload.Mix
}

var writers = []writer{
	{name: "none"},
	// Every write is durable before the next one, as in the log of a database.
	{name: "depth1", load: &lab.Load{Depth: 1}, mix: workload.Mix{Flush: 100}},
	{name: "depth32", load: &lab.Load{Depth: 32}, mix: workload.Mix{Flush: 2}},
	{name: "sequential", load: &lab.Load{Depth: 1}, mix: workload.Mix{Sequential: 1 << 20 / workload.BlockSize}},
}

func writerNames() (names []string) {
	for _, w := range writers {
		names = append(names, w.name)
	}
	return names
}
