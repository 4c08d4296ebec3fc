// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"strings"
)

// Task is a part of a daemon that runs as long as the daemon.
type Task interface {
	// Run works until ctx ends, and then returns nil. An error ends the daemon, so Run must not
	// return one for a temporary problem.
	Run(ctx context.Context) error
	// Ready is closed once the task does its work.
	Ready() <-chan struct{}
	// String names the task in logs and in the status of the unit.
	String() string
}

func names(tasks []Task) string {
	all := make([]string, 0, len(tasks))
	for _, t := range tasks {
		all = append(all, t.String())
	}
	return strings.Join(all, ", ")
}
