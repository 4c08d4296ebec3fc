// SPDX-License-Identifier: Apache-2.0

package migrate

import "sync"

// ChainProblem is an instance whose next start would use a chain without its newest writes,
// or of which that is unknown.
type ChainProblem struct{ MigrationID, VolumeName, InstanceID, InstanceName, Text string }

// chainProblems are the problems that the watch has seen last, by migration.
type chainProblems struct {
	mu    sync.Mutex
	found map[string]ChainProblem
}
