// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"time"
)

// CallerHeader names, for the audit trail only, the caller of a daemon's request to the registry:
// a user of the daemon's socket, or the caller named by the registry.
const CallerHeader = "Volferry-Caller"

// AskedBy separates a daemon and its caller in Event.Who.
const AskedBy = ", asked by "

// The headers of a daemon's request to the registry: the id of its host, and the epoch that the
// daemon believes its host to have. Over TLS the certificate has the id, and the header may only
// repeat it.
const (
	HostHeader  = "Volferry-Host"
	EpochHeader = "Volferry-Epoch"
)

// RegistryHeader is in each answer of a registry. Its value is the id of the database, a space,
// and the id of the process.
const RegistryHeader = "Volferry-Registry"

// The statuses of a host. A suspect host has been silent for a while; it keeps all that it holds.
// An operator has asserted that a fenced host cannot touch any volume; the host stays fenced until
// it has released everything that it lost, and rejoins.
const (
	HostUp      = "up"
	HostSuspect = "suspect"
	HostFenced  = "fenced"
)

// HostFence fences a host and raises its epoch (POST /v1/hosts/{host}/fence). Evidence is how the
// operator knows that the host cannot touch any volume any more.
type HostFence struct {
	Evidence string `json:"evidence"`
	// EvenIfUp fences a host that still reports. Without it the error is conflict.
	EvenIfUp bool `json:"even_if_up,omitempty"`
}

// HostRejoin is sent by a fenced host once it has released everything that it lost (POST
// /v1/hosts/{host}/rejoin). Epoch is from the detail "epoch" of the error stale_epoch.
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

// Task is a request of the registry to a host: one call of the daemon's API, for a caller of the
// registry. Its ID is the Idempotency-Key of that call, so that a task that is fetched twice is
// done once.
type Task struct {
	ID        string          `json:"id"`
	Host      string          `json:"host"`
	Who       string          `json:"who"`
	Method    string          `json:"method"`
	Path      string          `json:"path"` // with its query
	Body      json.RawMessage `json:"body,omitempty"`
	State     string          `json:"state" enum:"queued,taken,done,withdrawn"`
	CreatedAt time.Time       `json:"created_at"`
	// Late: the task was fetched before, and its caller was informed long ago that it may have
	// been done. The host must not begin the task now.
	Late bool `json:"late,omitempty"`
	// Needs are the features that the daemon must have for this call. If Protocol, the registry's
	// protocol, is later than the daemon's, Body may have fields that the daemon may ignore.
	Needs    []string `json:"needs,omitempty"`
	Protocol int      `json:"protocol,omitempty"`
}

// TaskAnswer is the answer of the host's API (POST /v1/hosts/{host}/tasks/{task}/answer).
type TaskAnswer struct {
	Status int             `json:"status"` // of HTTP
	Body   json.RawMessage `json:"body"`
}

// MigrationAbandon ends the migration of a fenced host, in the registry only (POST
// /v1/migrations/{migration}/abandon). Keep selects the copy that is the volume from now on;
// Reason is for the audit trail. EvenIfCorrupt permits Keep dst although the host was folding the
// guest's writes into dst, which may then have neither the volume's content at the start nor the
// guest's.
type MigrationAbandon struct {
	Keep          string `json:"keep" enum:"src,dst"`
	Reason        string `json:"reason"`
	EvenIfCorrupt bool   `json:"even_if_corrupt,omitempty"`
}

// The values of MigrationAbandon.Keep.
const (
	KeepSrc = "src"
	KeepDst = "dst"
)

// PoolDrain moves every volume of a pool, on every host, to another pool (POST
// /v1/pools/{pool}/drain). Parallel is how many volumes move at a time (0 is 1); the bandwidth
// limits each of them.
type PoolDrain struct {
	ToPool                  string `json:"to_pool"`
	Parallel                int    `json:"parallel,omitempty"`
	BandwidthBytesPerSecond int64  `json:"bandwidth_bytes_per_second,omitempty"`
	Pace                    string `json:"pace,omitempty" enum:"off,gentle,full"`
	// DeleteSource deletes each source after its copy is verified (a mirror: only with Verify
	// "full").
	Verify       string `json:"verify,omitempty" enum:"full,none"`
	DeleteSource bool   `json:"delete_source,omitempty"`
	// LiveShared also moves the volumes of several instances, as MigrationTarget with Method live;
	// PauseAll moves them as PauseAll there. Without either they are skipped.
	LiveShared      bool  `json:"live_shared,omitempty"`
	MaxPauseSeconds int64 `json:"max_pause_seconds,omitempty"`
	ThrottleWriters bool  `json:"throttle_writers,omitempty"`
	PauseAll        bool  `json:"pause_all,omitempty"`
	// Checkpoints is for volumes of at most one instance.
	Checkpoints string `json:"checkpoints,omitempty" enum:"drop"`
}

// CopyOptions returns the options of each copy.
func (in PoolDrain) CopyOptions() CopyOptions {
	return CopyOptions{BandwidthBytesPerSecond: in.BandwidthBytesPerSecond, Verify: in.Verify, Pace: in.Pace}
}

// Target returns the destination and options of each migration.
func (in PoolDrain) Target() MigrationTarget {
	return MigrationTarget{ToPool: in.ToPool, CopyOptions: in.CopyOptions(), DeleteSource: in.DeleteSource, Checkpoints: in.Checkpoints}
}

// MovesShared reports whether volumes of several instances are moved too.
func (in PoolDrain) MovesShared() bool { return in.LiveShared || in.PauseAll }

// SharedTarget is Target for a volume of several instances. Such a move drops no dirty bitmaps.
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

// The states of a drain. Done: every volume was moved, or has the reason why it cannot be. Running
// moves finish when a drain is stopped or paused.
const (
	DrainRunning = "running"
	DrainPaused  = "paused"
	DrainStopped = "stopped"
	DrainDone    = "done"
)

// The states of a volume in a drain. Skipped: it cannot be moved, and nothing was changed. Failed:
// its migration ended with an error.
const (
	DrainVolumePending = "pending"
	DrainVolumeMoving  = "moving"
	DrainVolumeMoved   = "moved"
	DrainVolumeSkipped = "skipped"
	DrainVolumeFailed  = "failed"
)

// Drain is the emptying of a pool by the registry, which continues it after a restart.
type Drain struct {
	ID                      string        `json:"id"`
	Pool                    string        `json:"pool"`
	ToPool                  string        `json:"to_pool"`
	Parallel                int           `json:"parallel"`
	BandwidthBytesPerSecond int64         `json:"bandwidth_bytes_per_second"`
	Pace                    string        `json:"pace,omitempty" enum:"off,gentle,full"`
	Verify                  string        `json:"verify,omitempty" enum:"full,none"`
	DeleteSource            bool          `json:"delete_source"`
	LiveShared              bool          `json:"live_shared,omitempty"`
	MaxPauseSeconds         int64         `json:"max_pause_seconds,omitempty"`
	ThrottleWriters         bool          `json:"throttle_writers,omitempty"`
	PauseAll                bool          `json:"pause_all,omitempty"`
	Checkpoints             string        `json:"checkpoints,omitempty" enum:"drop"`
	State                   string        `json:"state" enum:"running,paused,stopped,done"`
	BytesTotal              int64         `json:"bytes_total"`
	BytesDone               int64         `json:"bytes_done"`
	Volumes                 []DrainVolume `json:"volumes"`
	// Uses are the files below the path of the pool, on any host, that domains need. Moves of
	// volumes do not change them.
	Uses       []PoolUse  `json:"uses,omitempty"`
	StartedAt  time.Time  `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at"`
}

// Request returns the request that began the drain.
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
