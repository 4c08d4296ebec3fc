// SPDX-License-Identifier: Apache-2.0

package api

// Only the registry makes the calls below, in a move while all guests write. Answers, refusals and
// repeated tries are as in a move with all guests paused.

const (
	minLiveUnitBytes = 64 << 10
	maxLiveUnits     = 1 << 20
)

// LiveUnitBytes returns how many bytes of a volume one dirty bit covers: the smallest power of
// two, at least 64 KiB, with at most 2^20 bits. All hosts of a move use the same size.
func LiveUnitBytes(sizeBytes int64) int64 {
	unit := int64(minLiveUnitBytes)
	for (sizeBytes+unit-1)/unit > maxLiveUnits {
		unit *= 2
	}
	return unit
}

// LiveVolume describes the volume in every call. A host refuses a call if LiveVolume differs from
// the registry's row of the migration.
type LiveVolume struct {
	MigrationID string   `json:"migration_id"`
	VolumeID    string   `json:"volume_id"`
	VolumeName  string   `json:"volume_name"`
	Instances   []string `json:"instances"`
	Src         Location `json:"src"`
	Dst         Location `json:"dst"`
	UnitBytes   int64    `json:"unit_bytes"`
}

// LiveCheck asks a host whether its guests can keep writing while the volume moves (POST
// /v1/migrations/{migration}/check-live). It makes every check, changes nothing, and has no op id.
// The answer, a LiveHost, has the numbers for the estimate of the pause.
type LiveCheck struct {
	LiveVolume `schema:"extensible"`
}

// LiveHost describes the guests of a host before a move while all guests write.
type LiveHost struct {
	Instances []PausedInstance `json:"instances"`
	// SaveBytesPerSecond and RestoreBytesPerSecond are the rates for RAM; 0 if unknown.
	SaveBytesPerSecond    float64 `json:"save_bytes_per_second"`
	RestoreBytesPerSecond float64 `json:"restore_bytes_per_second"`
}

// LiveMake makes the copying host create Dst with the exact size of Src, durably (POST
// /v1/migrations/{migration}/make-live, op id MIGRATION.make). Dst is as in CopySaved. Nothing is
// copied.
type LiveMake struct {
	LiveVolume  `schema:"extensible"`
	CopyOptions `schema:"extensible"`
	Overwrite   bool `json:"overwrite,omitempty"`
}

// LiveTrack makes a host guard the instances that are off, and track the writes of the others for
// round 0 of a generation (an attempt to copy the volume) (POST /v1/migrations/{migration}/track,
// op id MIGRATION.track.HOST.GENERATION).
type LiveTrack struct {
	LiveVolume `schema:"extensible"`
	Generation int `json:"generation"`
}

// LiveSwap makes a host track writes for round Round of a generation instead of the previous round
// (POST /v1/migrations/{migration}/swap, op id MIGRATION.swap.HOST.GENERATION.ROUND). A write at
// the time of the swap is in both rounds. Round is at least 1. The op fails with bitmap_lost if
// the tracking of a guest had a gap, which ends the generation.
type LiveSwap struct {
	LiveVolume `schema:"extensible"`
	Generation int `json:"generation"`
	Round      int `json:"round"`
}

// LiveRound makes a host copy for a round (POST /v1/migrations/{migration}/copy-round, op id
// MIGRATION.round.HOST.GENERATION.ROUND). In round 0 the host copies its share of the volume, the
// bytes [FromBytes, UntilBytes); both are multiples of UnitBytes, except the end of the volume. In
// later rounds both are 0, and the host copies the blocks that its guests wrote before the swap
// for this round. When the op is done, the copied blocks are durable, and verified unless Verify
// is VerifyNone. The bandwidth limits this host only. The op fails with bitmap_lost like LiveSwap.
type LiveRound struct {
	LiveVolume `schema:"extensible"`
	Generation int   `json:"generation"`
	Round      int   `json:"round"`
	FromBytes  int64 `json:"from_bytes,omitempty"`
	UntilBytes int64 `json:"until_bytes,omitempty"`
	// WriteBytesPerSecond limits each guest's writes to the volume, until LiveLastRead, the end of
	// the generation, or LiveUntrack; 0 means no change.
	WriteBytesPerSecond int64 `json:"write_bytes_per_second,omitempty"`
	CopyOptions         `schema:"extensible"`
}

// LiveEndRound makes a host end its copy for a generation and discard the tracked writes (POST
// /v1/migrations/{migration}/end-round, op id MIGRATION.end.HOST.GENERATION.ROUND, with the ended
// round). When the op is done, this host cannot write to Dst for the generation any more, and
// refuses its further calls.
type LiveEndRound struct {
	LiveVolume `schema:"extensible"`
	Generation int `json:"generation"`
}

// LiveLastRead makes a host store, durably, which blocks its guests wrote since the last swap
// (POST /v1/migrations/{migration}/last-read, op id MIGRATION.read.HOST.GENERATION). All guests of
// all hosts are suspended. Op.Live.DirtyBytes is how much LiveLastCopy will copy. The op fails
// with bitmap_lost like LiveSwap, and with state_forbidden and the detail ran_on if a guest is not
// paused.
type LiveLastRead struct {
	LiveVolume `schema:"extensible"`
	Generation int `json:"generation"`
}

// LiveLastCopy makes a host copy the blocks that LiveLastRead has stored (POST
// /v1/migrations/{migration}/last-copy, op id MIGRATION.last.HOST.GENERATION). When the op is
// done, the blocks are durable, and equal to Src unless Verify is VerifyNone.
type LiveLastCopy struct {
	LiveVolume  `schema:"extensible"`
	Generation  int `json:"generation"`
	CopyOptions `schema:"extensible"`
}

// LiveUntrack makes a host end a running copy, and remove the tracking of writes, the guards of
// LiveTrack and the stored rounds (POST /v1/migrations/{migration}/untrack, op id
// MIGRATION.untrack.HOST). The host refuses later calls of the move. If there is nothing to
// remove, the op succeeds.
type LiveUntrack struct {
	LiveVolume `schema:"extensible"`
}
