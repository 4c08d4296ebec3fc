// SPDX-License-Identifier: Apache-2.0

package api

// The calls below come from the registry alone, in a move while all guests write. Each is
// answered with 202 and its op, whose id is the Idempotency-Key. As in a move with all
// guests paused a refusal below 500 says that nothing was done, and the n-th try of a call,
// from the second on, has "." and n behind its id. In the ids M is the migration, H the
// host, G the generation and R the round.

// minLiveUnitBytes and maxLiveUnits bound the units of a volume: see LiveUnitBytes.
const (
	minLiveUnitBytes = 64 << 10
	maxLiveUnits     = 1 << 20
)

// LiveUnitBytes returns what one dirty bit of a volume of this size stands for: a power of
// two, so large that there are at most 2^20 of them. All hosts of a move use the same.
func LiveUnitBytes(sizeBytes int64) int64 {
	unit := int64(minLiveUnitBytes)
	for (sizeBytes+unit-1)/unit > maxLiveUnits {
		unit *= 2
	}
	return unit
}

// LiveVolume is what every call of a move while all guests write says of the volume. A
// host refuses it if the registry's row of the migration says something else.
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

// LiveCheck asks a host whether its guests can write on while the volume moves: the body of
// POST /v1/migrations/{migration}/check-live. It makes every check, and changes nothing; it
// has no id. The answer says what the pause is estimated by.
type LiveCheck struct {
	LiveVolume `schema:"extensible"`
}

// LiveHost is what a host says of its guests before a move while all guests write.
type LiveHost struct {
	// Instances are the guests of the volume on this host, with their RAM and the free
	// space for it.
	Instances []PausedInstance `json:"instances"`
	// SaveBytesPerSecond and RestoreBytesPerSecond are the rates of saving and restoring
	// RAM on this host; 0 if nobody can tell.
	SaveBytesPerSecond    float64 `json:"save_bytes_per_second"`
	RestoreBytesPerSecond float64 `json:"restore_bytes_per_second"`
}

// LiveMake has the copy host make dst with the exact size of src, durably: the body of POST
// /v1/migrations/{migration}/make-live, with the id M.make. Dst has no path if it is to be
// made in a pool; the op's location then says where it was made. Nothing is copied. What it
// made is removed by DropSaved with DropDst.
type LiveMake struct {
	LiveVolume  `schema:"extensible"`
	CopyOptions `schema:"extensible"`
	// Overwrite is that of MigrationTarget.
	Overwrite bool `json:"overwrite,omitempty" needs:"-"`
}

// LiveTrack has a host guard the instances that are off, and follow what the processes of
// the others write, from now on and for round 0 of a generation: the body of POST
// /v1/migrations/{migration}/track, with the id M.track.H.G.
type LiveTrack struct {
	LiveVolume `schema:"extensible"`
	Generation int `json:"generation"`
}

// LiveSwap has a host follow writes for round Round of a generation, and no longer for the
// round before: the body of POST /v1/migrations/{migration}/swap, with the id M.swap.H.G.R.
// A write between the two is in both. Round is at least 1. The op fails with bitmap_lost
// if a guest was not followed without a gap, which ends the generation.
type LiveSwap struct {
	LiveVolume `schema:"extensible"`
	Generation int `json:"generation"`
	Round      int `json:"round"`
}

// LiveRound has a host copy for a round: the body of POST
// /v1/migrations/{migration}/copy-round, with the id M.round.H.G.R. In round 0 it copies its
// share of the volume, the bytes from FromBytes up to UntilBytes; both are multiples of
// UnitBytes, but the end of the volume. In every later round both are 0, and it copies what
// its guests wrote until the swap for this round. What it copied is durable when the op is
// done, and was read back unless Verify is VerifyNone. The bandwidth is for this host. The
// op has Live. It fails with bitmap_lost like LiveSwap.
type LiveRound struct {
	LiveVolume `schema:"extensible"`
	Generation int   `json:"generation"`
	Round      int   `json:"round"`
	FromBytes  int64 `json:"from_bytes,omitempty"`
	UntilBytes int64 `json:"until_bytes,omitempty"`
	// WriteBytesPerSecond is the most that each guest of this host may write to the volume from
	// here on, until what its guests wrote last is read, the generation ends, or the host
	// untracks them; 0 leaves that as it is.
	WriteBytesPerSecond int64 `json:"write_bytes_per_second,omitempty" needs:"throttle_writers"`
	CopyOptions         `schema:"extensible"`
}

// LiveEndRound has a host end what it copies for a generation, and forget what was written
// in it: the body of POST /v1/migrations/{migration}/end-round, with the id M.end.H.G.R,
// where R is the round that is ended. When the op is done, this host has nothing in its
// hands that it could still write to dst, and takes no call of the generation any more.
type LiveEndRound struct {
	LiveVolume `schema:"extensible"`
	Generation int `json:"generation"`
}

// LiveLastRead has a host keep, durably, what its guests wrote since the last swap: the
// body of POST /v1/migrations/{migration}/last-read, with the id M.read.H.G. All guests of
// all hosts are suspended. The op has Live: DirtyBytes is what LiveLastCopy will copy. It
// fails with bitmap_lost like LiveSwap, and with state_forbidden and the detail ran_on if a
// guest does not stand still.
type LiveLastRead struct {
	LiveVolume `schema:"extensible"`
	Generation int `json:"generation"`
}

// LiveLastCopy has a host copy what LiveLastRead has kept: the body of POST
// /v1/migrations/{migration}/last-copy, with the id M.last.H.G. What it copied is durable
// when the op is done, and equal to src unless Verify is VerifyNone. The op has Live.
type LiveLastCopy struct {
	LiveVolume  `schema:"extensible"`
	Generation  int `json:"generation"`
	CopyOptions `schema:"extensible"`
}

// LiveUntrack has a host leave nothing of the move behind it in its guests: what follows
// their writes, the guards of LiveTrack, and what was kept of rounds. It is the body of POST
// /v1/migrations/{migration}/untrack, with the id M.untrack.H. A copy that still runs is
// ended first, and no other call of the move is taken afterwards. It is no error if there is
// nothing.
type LiveUntrack struct {
	LiveVolume `schema:"extensible"`
}
