// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"time"
)

// CallerHeader is the header by which a daemon tells the registry who asked its host for what it
// asks the registry for: a user of its socket, or whoever the registry has told it of. It is for
// the audit trail, and decides nothing.
const CallerHeader = "Volferry-Caller"

// AskedBy is between a daemon and who asked it, in Event.Who.
const AskedBy = ", asked by "

// The headers of a daemon's request to the registry: the id of its host, and the epoch that
// it believes its host to be in. Over TLS the certificate has the id, and the header may
// only repeat it.
const (
	HostHeader  = "Volferry-Host"
	EpochHeader = "Volferry-Epoch"
)

// RegistryHeader is in each answer of a registry: the id of its database and, behind a space,
// one of the process.
const RegistryHeader = "Volferry-Registry"

// The statuses of a host. A suspect host has been silent for a while; it keeps all that it
// holds. An operator has said of a fenced host that it cannot touch anything any more; it
// is fenced until it has let go of what it lost and comes back.
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
	// EvenIfUp fences a host that reports right now. Without it that is refused with
	// conflict, because the host has power and a network.
	EvenIfUp bool `json:"even_if_up,omitempty"`
}

// HostRejoin is sent by a fenced host once it has let go of everything that it lost: the
// body of POST /v1/hosts/{host}/rejoin. Epoch is the epoch that the registry told it (the
// detail "epoch" of stale_epoch).
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
	// Late says that the task was given out before, and that its caller was told long ago
	// that it may have been done. The host must not begin it now if it has not begun it
	// then.
	Late bool `json:"late,omitempty"`
	// Needs are the features that the daemon has to have for this call. Protocol is the
	// protocol of the registry: if it is later than the daemon's, Body may have fields that
	// the daemon does not know and need not know.
	Needs    []string `json:"needs,omitempty"`
	Protocol int      `json:"protocol,omitempty"`
}

// TaskAnswer is what the host's API answered: the body of POST
// /v1/hosts/{host}/tasks/{task}/answer.
type TaskAnswer struct {
	Status int             `json:"status"` // of HTTP
	Body   json.RawMessage `json:"body"`
}

// MigrationAbandon ends a migration whose host is fenced, at the registry alone: the body
// of POST /v1/migrations/{migration}/abandon. Keep says which copy is the volume from now
// on, src or dst; Reason is for the audit trail. EvenIfCorrupt allows to keep dst although
// the host was bringing the guest's writes into it, so that it may be neither the volume as
// of the start nor what the guest had.
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

// PoolDrain asks to move every volume of a pool, on every host, to another pool: the body
// of POST /v1/pools/{pool}/drain. Parallel is how many volumes move at a time (0 is 1); the
// bandwidth is a cap on each of them.
type PoolDrain struct {
	ToPool                  string `json:"to_pool"`
	Parallel                int    `json:"parallel,omitempty"`
	BandwidthBytesPerSecond int64  `json:"bandwidth_bytes_per_second,omitempty"`
	// Pace is as in CopyOptions.
	Pace string `json:"pace,omitempty" enum:"off,gentle,full" needs:"-"`
	// Verify is as in CopyOptions. DeleteSource deletes each source once its copy is verified, as
	// in MigrationTarget: a mirror is verified with Verify "full" alone.
	Verify       string `json:"verify,omitempty" enum:"full,none" needs:"drain_verify"`
	DeleteSource bool   `json:"delete_source,omitempty"`
	// LiveShared moves the volumes that several instances have, too, as MigrationTarget does with
	// Method live; MaxPauseSeconds and ThrottleWriters are as there. PauseAll moves them as
	// PauseAll there does. Without either they are skipped.
	LiveShared      bool  `json:"live_shared,omitempty" needs:"drain_live_shared"`
	MaxPauseSeconds int64 `json:"max_pause_seconds,omitempty" needs:"drain_live_shared"`
	ThrottleWriters bool  `json:"throttle_writers,omitempty" needs:"drain_live_shared"`
	PauseAll        bool  `json:"pause_all,omitempty" needs:"drain_pause_all"`
	// Checkpoints is as in MigrationTarget, for the volumes that one instance has, or none.
	Checkpoints string `json:"checkpoints,omitempty" enum:"drop" needs:"drain_checkpoints"`
}

// CopyOptions returns how each volume is copied.
func (in PoolDrain) CopyOptions() CopyOptions {
	return CopyOptions{BandwidthBytesPerSecond: in.BandwidthBytesPerSecond, Verify: in.Verify, Pace: in.Pace}
}

// Target says where and how the volumes are migrated.
func (in PoolDrain) Target() MigrationTarget {
	return MigrationTarget{ToPool: in.ToPool, CopyOptions: in.CopyOptions(), DeleteSource: in.DeleteSource, Checkpoints: in.Checkpoints}
}

// MovesShared reports whether the volumes that several instances have are moved, too.
func (in PoolDrain) MovesShared() bool { return in.LiveShared || in.PauseAll }

// SharedTarget is Target for a volume that several instances have. Such a move drops no dirty
// bitmaps.
func (in PoolDrain) SharedTarget() MigrationTarget {
	t := in.Target()
	t.Checkpoints = ""
	if in.PauseAll {
		t.PauseAll = true
		return t
	}
	t.Method, t.MaxPauseSeconds, t.ThrottleWriters = MethodLive, in.MaxPauseSeconds, in.ThrottleWriters
	return t
}

// The states of a drain. Done: every volume was moved, or says why it cannot be. Moves that
// are under way come to their end when a drain is stopped or paused.
const (
	DrainRunning = "running"
	DrainPaused  = "paused"
	DrainStopped = "stopped"
	DrainDone    = "done"
)

// The states of a volume in a drain. Skipped: it cannot be moved, and nothing was touched.
// Failed: its migration was begun and ended with an error.
const (
	DrainVolumePending = "pending"
	DrainVolumeMoving  = "moving"
	DrainVolumeMoved   = "moved"
	DrainVolumeSkipped = "skipped"
	DrainVolumeFailed  = "failed"
)

// Drain is the emptying of a pool. The registry carries it out, also across restarts.
type Drain struct {
	ID                      string        `json:"id"`
	Pool                    string        `json:"pool"`
	ToPool                  string        `json:"to_pool"`
	Parallel                int           `json:"parallel"`
	BandwidthBytesPerSecond int64         `json:"bandwidth_bytes_per_second"`
	Pace                    string        `json:"pace,omitempty" enum:"off,gentle,full" needs:"-"`
	Verify                  string        `json:"verify,omitempty" enum:"full,none" needs:"-"`
	DeleteSource            bool          `json:"delete_source"`
	LiveShared              bool          `json:"live_shared,omitempty" needs:"-"`
	MaxPauseSeconds         int64         `json:"max_pause_seconds,omitempty" needs:"-"`
	ThrottleWriters         bool          `json:"throttle_writers,omitempty" needs:"-"`
	PauseAll                bool          `json:"pause_all,omitempty" needs:"-"`
	Checkpoints             string        `json:"checkpoints,omitempty" enum:"drop" needs:"-"`
	State                   string        `json:"state" enum:"running,paused,stopped,done"`
	BytesTotal              int64         `json:"bytes_total"`
	BytesDone               int64         `json:"bytes_done"`
	Volumes                 []DrainVolume `json:"volumes"`
	// Uses are the files below the path of the pool, of any host, that domains need. Moves of
	// volumes do not end them.
	Uses       []PoolUse  `json:"uses,omitempty" needs:"-"`
	StartedAt  time.Time  `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at"`
}

// Request is what the drain was asked for by.
func (d *Drain) Request() PoolDrain {
	return PoolDrain{
		ToPool: d.ToPool, Parallel: d.Parallel, BandwidthBytesPerSecond: d.BandwidthBytesPerSecond, Pace: d.Pace, Verify: d.Verify, DeleteSource: d.DeleteSource,
		LiveShared: d.LiveShared, MaxPauseSeconds: d.MaxPauseSeconds, ThrottleWriters: d.ThrottleWriters, PauseAll: d.PauseAll, Checkpoints: d.Checkpoints,
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
