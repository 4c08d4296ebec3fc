// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"strings"
)

// Task is a part of a daemon that runs for as long as the daemon does.
type Task interface {
	// Run works until ctx ends, and then returns nil. If it cannot go on it returns an
	// error, which ends the daemon. It does not return an error for a trouble that may
	// pass.
	Run(ctx context.Context) error
	// Ready is closed once the task does what it is there for.
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
