// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"time"
)

// The headers of a request of a daemon to the registry: the id of its host and
// the epoch that it believes its host to be in. Over TLS the id is the
// certificate's, and the header may only repeat it.
const (
	HostHeader  = "Volferry-Host"
	EpochHeader = "Volferry-Epoch"
)

// The statuses of a host. Suspect is one that was silent for a while: what it
// holds stays held. Fenced is one that an operator says cannot touch anything
// any more, until it comes back and has let go of what it lost.
const (
	HostUp      = "up"
	HostSuspect = "suspect"
	HostFenced  = "fenced"
)

// HostFence is the operator's word that a host cannot touch any volume any
// more, and how that is known: the body of POST /v1/hosts/{host}/fence. It
// bumps the host's epoch.
type HostFence struct {
	Evidence string `json:"evidence"`
	// EvenIfUp takes that word also of a host that reports right now, which is
	// refused with conflict otherwise: that host has power and a network.
	EvenIfUp bool `json:"even_if_up,omitempty"`
}

// HostRejoin is sent by a host that was fenced, once it has let go of all that
// it lost: the body of POST /v1/hosts/{host}/rejoin. Epoch is the one that the
// registry told it (the detail "epoch" of stale_epoch).
type HostRejoin struct {
	Epoch int64 `json:"epoch"`
}

// The states of a task.
const (
	TaskQueued    = "queued"
	TaskTaken     = "taken"
	TaskDone      = "done"
	TaskWithdrawn = "withdrawn"
)

// Task is a request of the registry to a host: one call of the daemon's own
// API, made for somebody who called the registry. Its ID is also the
// Idempotency-Key of that call, so that a task that is fetched twice is done
// once.
type Task struct {
	ID        string          `json:"id"`
	Host      string          `json:"host"`
	Who       string          `json:"who"`
	Method    string          `json:"method"`
	Path      string          `json:"path"` // with its query
	Body      json.RawMessage `json:"body,omitempty"`
	State     string          `json:"state" enum:"queued,taken,done,withdrawn"`
	CreatedAt time.Time       `json:"created_at"`
	// Late is a task that was given out before and whose caller has long been told
	// that it may have been done: what was not begun then is not begun now.
	Late bool `json:"late,omitempty"`
	// Needs are the features that the daemon has to have for this call, and Protocol is that
	// of the registry which hands it out: a later one than the daemon's may have put fields
	// into Body that the daemon does not know and need not.
	Needs    []string `json:"needs,omitempty"`
	Protocol int      `json:"protocol,omitempty"`
}

// TaskAnswer is what the host's API answered: the body of POST
// /v1/hosts/{host}/tasks/{task}/answer.
type TaskAnswer struct {
	Status int             `json:"status"` // of HTTP
	Body   json.RawMessage `json:"body"`
}

// MigrationAbandon ends, at the registry alone, a migration whose host is
// fenced: the body of POST /v1/migrations/{migration}/abandon. Keep says which
// copy is the volume from now on, src or dst; Reason is for the audit trail.
// EvenIfCorrupt takes a dst that may be neither the volume of the start nor what the guest
// had, as its host was bringing the guest's writes into it.
type MigrationAbandon struct {
	Keep          string `json:"keep" enum:"src,dst"`
	Reason        string `json:"reason"`
	EvenIfCorrupt bool   `json:"even_if_corrupt,omitempty"`
}

// The copies that an abandoned migration may keep.
const (
	KeepSrc = "src"
	KeepDst = "dst"
)

// PoolDrain asks to move every volume of a pool, on every host, to another
// pool: the body of POST /v1/pools/{pool}/drain. Parallel is how many move at
// once (0 is 1); the bandwidth is of each.
type PoolDrain struct {
	ToPool                  string `json:"to_pool"`
	Parallel                int    `json:"parallel,omitempty"`
	BandwidthBytesPerSecond int64  `json:"bandwidth_bytes_per_second,omitempty"`
	// DeleteSource has each source deleted once its copy is verified, as that of
	// MigrationTarget.
	DeleteSource bool `json:"delete_source,omitempty"`
}

// CopyOptions returns how each volume is copied.
func (in PoolDrain) CopyOptions() CopyOptions {
	return CopyOptions{BandwidthBytesPerSecond: in.BandwidthBytesPerSecond}
}

// The states of a drain. Done: every volume was moved, or cannot be and says
// why. Stopping and pausing let the moves that run end.
const (
	DrainRunning = "running"
	DrainPaused  = "paused"
	DrainStopped = "stopped"
	DrainDone    = "done"
)

// The states of a volume in a drain. Skipped could not be moved and nothing
// was touched; failed was begun and ended in error.
const (
	DrainVolumePending = "pending"
	DrainVolumeMoving  = "moving"
	DrainVolumeMoved   = "moved"
	DrainVolumeSkipped = "skipped"
	DrainVolumeFailed  = "failed"
)

// Drain is the emptying of a pool. It is the registry's and survives restarts.
type Drain struct {
	ID                      string        `json:"id"`
	Pool                    string        `json:"pool"`
	ToPool                  string        `json:"to_pool"`
	Parallel                int           `json:"parallel"`
	BandwidthBytesPerSecond int64         `json:"bandwidth_bytes_per_second"`
	DeleteSource            bool          `json:"delete_source"`
	State                   string        `json:"state" enum:"running,paused,stopped,done"`
	BytesTotal              int64         `json:"bytes_total"`
	BytesDone               int64         `json:"bytes_done"`
	Volumes                 []DrainVolume `json:"volumes"`
	StartedAt               time.Time     `json:"started_at"`
	FinishedAt              *time.Time    `json:"finished_at"`
}

// Target is where and how each volume of a drain is moved.
func (d *Drain) Target() MigrationTarget {
	return MigrationTarget{
		ToPool: d.ToPool, CopyOptions: CopyOptions{BandwidthBytesPerSecond: d.BandwidthBytesPerSecond}, DeleteSource: d.DeleteSource,
	}
}

// DrainVolume is one volume of a drain.
type DrainVolume struct {
	VolumeID    string `json:"volume_id"`
	VolumeName  string `json:"volume_name"`
	SizeBytes   int64  `json:"size_bytes"`
	Host        string `json:"host,omitempty"`
	State       string `json:"state" enum:"pending,moving,moved,skipped,failed"`
	MigrationID string `json:"migration_id,omitempty"`
	BytesDone   int64  `json:"bytes_done"`
	Error       *Error `json:"error"`
}
