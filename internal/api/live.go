// SPDX-License-Identifier: Apache-2.0

package api

// Only the registry makes the calls below, in a move while all guests write. Each is answered with
// 202 and its op; the op's id is the Idempotency-Key. As in a move with all guests paused, a
// refusal with a status below 500 means that nothing was done, and the n-th try of a call, from the
// second on, has the suffix "." and n. In the ids M is the migration, H the host, G the generation
// and R the round.

// minLiveUnitBytes and maxLiveUnits limit the units of a volume: see LiveUnitBytes.
const (
	minLiveUnitBytes = 64 << 10
	maxLiveUnits     = 1 << 20
)

// LiveUnitBytes returns the bytes of one dirty bit of a volume of this size: the smallest power of
// two, at least 64 KiB, with at most 2^20 units. All hosts of a move use the same.
func LiveUnitBytes(sizeBytes int64) int64 {
	unit := int64(minLiveUnitBytes)
	for (sizeBytes+unit-1)/unit > maxLiveUnits {
		unit *= 2
	}
	return unit
}

// LiveVolume describes the volume in every call of a move while all guests write. A host refuses it
// if it differs from the registry's row of the migration.
type LiveVolume struct {
	MigrationID string `json:"migration_id"`
	VolumeID    string `json:"volume_id"`
	VolumeName  string `json:"volume_name"`
	// Instances are the ids of all instances of this host that have the volume.
	Instances []string `json:"instances"`
	Src       Location `json:"src"`
	Dst       Location `json:"dst"`
	// UnitBytes is LiveUnitBytes of the volume's size.
	UnitBytes int64 `json:"unit_bytes"`
}

// LiveCheck asks a host whether its guests can keep writing while the volume moves: the body of
// POST /v1/migrations/{migration}/check-live. It makes every check, changes nothing, and has no id.
// The answer has the numbers for the estimate of the pause.
type LiveCheck struct {
	LiveVolume `schema:"extensible"`
}

// LiveHost describes the guests of a host before a move while all guests write.
type LiveHost struct {
	// Instances are the instances of the volume on this host, with their RAM and the free space for
	// it.
	Instances []PausedInstance `json:"instances"`
	// SaveBytesPerSecond and RestoreBytesPerSecond are the rates of saving and restoring RAM on
	// this host; 0 if unknown.
	SaveBytesPerSecond    float64 `json:"save_bytes_per_second"`
	RestoreBytesPerSecond float64 `json:"restore_bytes_per_second"`
}

// LiveMake makes the copying host create Dst with the exact size of Src, durably: the body of POST
// /v1/migrations/{migration}/make-live, with the id M.make. A Dst to be created in a pool has no
// path; the op's location has it. Nothing is copied. DropSaved with DropDst removes the image.
type LiveMake struct {
	LiveVolume  `schema:"extensible"`
	CopyOptions `schema:"extensible"`
	// Overwrite is as in MigrationTarget.
	Overwrite bool `json:"overwrite,omitempty" needs:"-"`
}

// LiveTrack makes a host guard the instances that are off, and track the writes of the others from
// now on, for round 0 of a generation: the body of POST /v1/migrations/{migration}/track, with the
// id M.track.H.G.
type LiveTrack struct {
	LiveVolume `schema:"extensible"`
	Generation int `json:"generation"`
}

// LiveSwap makes a host track writes for round Round of a generation instead of the previous round:
// the body of POST /v1/migrations/{migration}/swap, with the id M.swap.H.G.R. A write at the time
// of the swap is in both rounds. Round is at least 1. The op fails with bitmap_lost if the tracking
// of a guest had a gap, which ends the generation.
type LiveSwap struct {
	LiveVolume `schema:"extensible"`
	Generation int `json:"generation"`
	Round      int `json:"round"`
}

// LiveRound makes a host copy for a round: the body of POST /v1/migrations/{migration}/copy-round,
// with the id M.round.H.G.R. In round 0 it copies its share of the volume, the bytes [FromBytes,
// UntilBytes); both are multiples of UnitBytes, except the end of the volume. In later rounds both
// are 0, and it copies the blocks that its guests wrote before the swap for this round. When the op
// is done, the copied blocks are durable, and verified unless Verify is VerifyNone. The bandwidth
// is for this host. The op has Live. It fails with bitmap_lost like LiveSwap.
type LiveRound struct {
	LiveVolume `schema:"extensible"`
	Generation int   `json:"generation"`
	Round      int   `json:"round"`
	FromBytes  int64 `json:"from_bytes,omitempty"`
	UntilBytes int64 `json:"until_bytes,omitempty"`
	// WriteBytesPerSecond limits the writes of each guest of this host to the volume, until
	// LiveLastRead, the end of the generation, or LiveUntrack; 0 means no change.
	WriteBytesPerSecond int64 `json:"write_bytes_per_second,omitempty" needs:"throttle_writers"`
	CopyOptions         `schema:"extensible"`
}

// LiveEndRound makes a host end its copy for a generation and discard the tracked writes: the body
// of POST /v1/migrations/{migration}/end-round, with the id M.end.H.G.R, with R the ended round.
// When the op is done, this host cannot write to Dst for the generation any more, and refuses
// further calls of the generation.
type LiveEndRound struct {
	LiveVolume `schema:"extensible"`
	Generation int `json:"generation"`
}

// LiveLastRead makes a host store, durably, which blocks its guests wrote since the last swap: the
// body of POST /v1/migrations/{migration}/last-read, with the id M.read.H.G. All guests of all
// hosts are suspended. The op has Live: DirtyBytes is how much LiveLastCopy will copy. It fails
// with bitmap_lost like LiveSwap, and with state_forbidden and the detail ran_on if a guest is not
// paused.
type LiveLastRead struct {
	LiveVolume `schema:"extensible"`
	Generation int `json:"generation"`
}

// LiveLastCopy makes a host copy the blocks that LiveLastRead has stored: the body of POST
// /v1/migrations/{migration}/last-copy, with the id M.last.H.G. When the op is done, the copied
// blocks are durable, and equal to Src unless Verify is VerifyNone. The op has Live.
type LiveLastCopy struct {
	LiveVolume  `schema:"extensible"`
	Generation  int `json:"generation"`
	CopyOptions `schema:"extensible"`
}

// LiveUntrack makes a host remove all traces of the move from its guests: the tracking of writes,
// the guards of LiveTrack, and the stored rounds. It is the body of POST
// /v1/migrations/{migration}/untrack, with the id M.untrack.H. A running copy is ended first, and
// the host refuses later calls of the move. If there is nothing to remove, the op succeeds.
type LiveUntrack struct {
	LiveVolume `schema:"extensible"`
}
