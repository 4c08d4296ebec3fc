// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/bench/meter"
)

// stopped is the group of the moves of volumes that no guest has.
const stopped = "stopped"

// record is one move, as it is in the raw results.
type record struct {
	Name      string `json:"name"` // always move
	Round     int    `json:"round"`
	Contender string `json:"contender"`
	// Group is what the guest does, the name of a writer; or stopped.
	Group       string `json:"group"`
	SizeBytes   int64  `json:"size_bytes"`
	FillPercent uint64 `json:"fill_percent"`
	// Disks is 1 where source and destination are on one disk, and 2 where each is on its own.
	Disks uint64 `json:"disks"`
	// Error says why there is no measurement; the contender did not do its work.
	Error string `json:"error,omitempty"`

	TotalSeconds float64 `json:"total_s,omitempty"`
	// PhaseSeconds are those of copy, verify and fold; of Volferry alone.
	PhaseSeconds   map[string]float64 `json:"phase_s,omitempty"`
	ExposedSeconds float64            `json:"exposed_s,omitempty"`
	StallMS        *api.StallMS       `json:"stall_ms,omitempty"`
	// GapMS are the longest times without an acknowledgement, as the host saw them: at
	// start and switch, where these are known.
	GapMS map[string]float64 `json:"gap_ms,omitempty"`
	// Guest are the guest's writes: idle, move, after; of Volferry also overlay (alone), copy,
	// verify, fold.
	Guest map[string]window `json:"guest,omitempty"`

	Cost *cost `json:"cost,omitempty"`
	// CheckedBlocks of 4 KiB were read back and were right.
	CheckedBlocks int `json:"checked_blocks,omitempty"`
}

// cost is what a move took of the machine.
type cost struct {
	// MoverCPUSeconds are of the command, and of the daemon with its children.
	MoverCPUSeconds float64 `json:"mover_cpu_s"`
	// QEMUCPUSeconds are of the guest's QEMU, which also emulates the guest.
	QEMUCPUSeconds float64 `json:"qemu_cpu_s"`
	// QEMUIdleCores is how many cores QEMU uses before the move.
	QEMUIdleCores float64 `json:"qemu_idle_cores"`
	// The peaks are of resident memory: of the daemon, also where it has nothing to do; of a
	// command that copies; and of the guest's QEMU, the guest's own memory included.
	DaemonPeakBytes  int64 `json:"daemon_peak_bytes"`
	CommandPeakBytes int64 `json:"command_peak_bytes,omitempty"`
	QEMUPeakBytes    int64 `json:"qemu_peak_bytes,omitempty"`
	// QEMUWrittenBytes are what the guest's QEMU wrote, wherever it did: to the overlay, which is
	// on neither of the two disks below, and to source and destination. The guest's own writes are
	// among them.
	QEMUWrittenBytes int64 `json:"qemu_written_bytes,omitempty"`
	// The bytes of a disk are everybody's: of the mover, and of the guest as long as it is not on
	// an overlay. Where the move is a clone, both are of the one disk.
	Src meter.DiskBytes `json:"src_disk"`
	Dst meter.DiskBytes `json:"dst_disk"`
}
