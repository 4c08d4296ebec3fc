// SPDX-License-Identifier: Apache-2.0

package hv

// State is the state of a domain.
type State string

// The states of a domain. Everything that is neither running nor off for good
// (saving, dying, suspended by power management, crashed with its process
// still there) is StateOther.
const (
	StateRunning State = "running"
	StatePaused  State = "paused"
	StateStopped State = "stopped"
	StateOther   State = "other"
)

// Active reports whether a hypervisor process holds the domain's disks open.
func (s State) Active() bool { return s != StateStopped }

// PauseReason says why a domain is paused.
type PauseReason string

// The pause reasons that matter here: by a caller (us, or a person with
// virsh), by an I/O error, or anything else.
const (
	PauseUser    PauseReason = "user"
	PauseIOError PauseReason = "io_error"
	PauseOther   PauseReason = "other"
	// PauseAsleep and PauseCrashed are reasons of StateOther: the guest has gone to sleep (S3), or
	// has crashed and its process is kept. Its CPUs do nothing.
	PauseAsleep  PauseReason = "asleep"
	PauseCrashed PauseReason = "crashed"
)

// RunState reports whether a domain runs, at one moment. It is a part of Domain.
type RunState struct {
	State       State
	PauseReason PauseReason // only if paused, asleep or crashed
	Occupied    bool
}

// Domain is one libvirt domain at one moment.
type Domain struct {
	ID          string // UUID, lower case, with dashes
	Name        string
	State       State
	PauseReason PauseReason // only if paused, asleep or crashed
	Persistent  bool
	Autostart   bool
	// ManagedSave: a start would restore an old XML with old paths.
	ManagedSave bool
	// Moved: the domain is off here because its process went to another host by live
	// migration, and as far as this host knows it runs there. libvirt forgets that when it
	// is restarted.
	Moved       bool
	Snapshots   int
	Checkpoints int
	// IOThreads: QEMU has, or gets, I/O threads, which may serve disks.
	IOThreads bool
	// MemoryBytes is how much RAM the domain may have.
	MemoryBytes int64
	// Occupied: a call on the domain's process is under way, perhaps one whose caller has
	// given up: its effect may still come.
	Occupied bool
	// Run tells the process from the earlier processes of the domain: each start changes
	// it. It is 0 if the domain is not active.
	Run int
	// Booted: the process began with empty RAM, and the domain was neither paused nor reverted to
	// a snapshot since. If it is false, the RAM may be that of an earlier process.
	Booted bool
	// Live are the disks of the running process, nil if the domain is not
	// active. Config are the disks of the persistent definition, nil if the
	// domain is transient.
	Live   []Disk
	Config []Disk
	// Files is what the running process, the persistent definition and a managed save image name,
	// the images of disks too, each once. Domains alone fills it in.
	Files []DomainFile
	// FilesUnknown says why Files lacks some of it, empty if it has all.
	FilesUnknown string
}

// DomainFile is a file, a directory or a volume of a pool that a domain names.
type DomainFile struct {
	// What is the element that names it, as nvram, or the disk, as cdrom sda.
	What string
	// Path is absolute, as it is written. For a volume of a pool it is the name of the volume.
	Path string
	// Pool is the pool of a volume that is named by its pool, empty for a file.
	Pool string
}

// LiveDisk returns the live disk with this target (vda), nil if none.
func (d *Domain) LiveDisk(target string) *Disk { return findDisk(d.Live, target) }

// LimitedWith are the targets of the other live disks that share a limit of throughput with a disk.
func (d *Domain) LimitedWith(target string) (others []string) {
	of := d.LiveDisk(target)
	if of == nil || of.ThrottleGroup == "" {
		return nil
	}
	for i := range d.Live {
		if other := &d.Live[i]; other.Target != target && other.ThrottleGroup == of.ThrottleGroup {
			others = append(others, other.Target)
		}
	}
	return others
}

// ConfigDisk returns the disk of the persistent definition with this target,
// nil if none.
func (d *Domain) ConfigDisk(target string) *Disk { return findDisk(d.Config, target) }

func findDisk(disks []Disk, target string) *Disk {
	for i := range disks {
		if disks[i].Target == target {
			return &disks[i]
		}
	}
	return nil
}

// DomainDefinition is everything that a host needs to define a domain: its definition, with
// the secrets in it, and the UEFI variables of its guest (nil if it has none).
type DomainDefinition struct {
	Domain    string
	NVRAM     []byte
	Autostart bool
}
