// SPDX-License-Identifier: Apache-2.0

package workload

// Port is the name of the virtio-serial port between guest and host. Every line
// on it is a JSON document, so a line that a reset cut short is not taken for
// another.
const Port = "volferry.lab"

// RootOption begins the word on the kernel's command line that names the volume
// that the kernel comes from.
const RootOption = "volferry.root="

// The types of reports, from the guest.
const (
	ReportHello   = "hello"   // the guest is up; Disks and Root are set. Sent once per boot
	ReportDisks   = "disks"   // a disk came or went; Disks are those that there are now
	ReportAck     = "ack"     // an operation is done; Op, LatencyUS, FlushUS and MonotonicUS are set
	ReportIOError = "ioerror" // an operation failed; Op and Text are set
	ReportStopped = "stopped" // a writer has ended and has nothing in flight
	// ReportCounted: the number of a region on Disk was counted up to Value. ReportUncounted: that
	// has ended.
	ReportCounted   = "counted"
	ReportUncounted = "uncounted"
	ReportFatal     = "fatal" // the guest cannot go on; Text is set
)

// Report is a line from the guest.
type Report struct {
	Type string `json:"t"`
	// Boot tells the boots of a guest apart; the host's commands carry it.
	Boot  string      `json:"boot,omitempty"`
	Disks []GuestDisk `json:"disks,omitempty"`
	// Root is what RootOption says, in a hello.
	Root string `json:"root,omitempty"`
	// Disk is the kernel's name of the disk, for example vda.
	Disk string `json:"disk,omitempty"`
	Op   *Op    `json:"op,omitempty"`
	// LatencyUS is from the submission of the operation to its completion, the
	// flush included, by the guest's clock. That clock stands still while the
	// guest is paused.
	LatencyUS uint64 `json:"us,omitempty"`
	// FlushUS is the part of LatencyUS that the flush took.
	FlushUS uint64 `json:"flush_us,omitempty"`
	// MonotonicUS is the guest's clock at the completion.
	MonotonicUS uint64 `json:"at,omitempty"`
	Value       uint64 `json:"value,omitempty"`
	Text        string `json:"text,omitempty"`
}

// GuestDisk is a disk as the guest sees it.
type GuestDisk struct {
	Name     string `json:"name"`
	Serial   string `json:"serial"`
	Blocks   uint64 `json:"blocks"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// The types of commands, to the guest.
const (
	CommandStart    = "start"    // run a writer on Disk
	CommandPace     = "pace"     // change IntervalUS of the writer on Disk
	CommandConfirm  = "confirm"  // Confirmed acknowledgements of Disk have arrived
	CommandStop     = "stop"     // end the writer on Disk when its operations are done
	CommandCount    = "count"    // count up in the Region of Disk, as guest Self of it, each IntervalUS
	CommandUncount  = "uncount"  // end that
	CommandPowerOff = "poweroff" // at once
	CommandReboot   = "reboot"   // at once
	CommandSleep    = "sleep"    // S3, until somebody wakes the machine
	CommandCrash    = "crash"    // a panic of the kernel, at once
)

// Command is a line to the guest. One for another boot is ignored: it was on
// its way when the guest was reset.
type Command struct {
	Type   string  `json:"t"`
	Boot   string  `json:"boot"`
	Disk   string  `json:"disk,omitempty"`
	Stream *Stream `json:"stream,omitempty"`
	// Base is the first operation of the stream to run.
	Base uint64 `json:"base,omitempty"`
	// Depth is the number of operations in flight at most.
	Depth int `json:"depth,omitempty"`
	// IntervalUS is the time from one submission to the next.
	IntervalUS uint64 `json:"interval_us,omitempty"`
	Confirmed  uint64 `json:"confirmed,omitempty"`
	// Region is the first block of a region, and Self the number of the guest in it.
	Region uint64 `json:"region,omitempty"`
	Self   uint64 `json:"self,omitempty"`
}
