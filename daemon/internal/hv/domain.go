// SPDX-License-Identifier: Apache-2.0

package hv

import "context"

// State is the state of a domain.
type State string

// StateOther is every state that is neither running nor off for good: saving, dying, suspended by
// power management, crashed with its process still there.
const (
	StateRunning State = "running"
	StatePaused  State = "paused"
	StateStopped State = "stopped"
	StateOther   State = "other"
)

// Active reports whether a hypervisor process holds the domain's disks open.
func (s State) Active() bool { return s != StateStopped }

// PauseReason is why a domain is paused.
type PauseReason string

// The relevant pause reasons: a caller (Volferry, or a person with virsh), an I/O error, or any
// other.
const (
	PauseUser    PauseReason = "user"
	PauseIOError PauseReason = "io_error"
	PauseOther   PauseReason = "other"
	// PauseAsleep and PauseCrashed are reasons of StateOther: the guest sleeps (S3), or has
	// crashed and its process is kept. Its CPUs do not run.
	PauseAsleep  PauseReason = "asleep"
	PauseCrashed PauseReason = "crashed"
)

// RunState is the run state of a domain at one moment.
type RunState struct {
	State       State
	PauseReason PauseReason // if paused, asleep or crashed
	Occupied    bool
}

// Domain is one libvirt domain at one moment.
type Domain struct {
	ID          string // UUID, lower case, with dashes
	Name        string
	State       State
	PauseReason PauseReason
	Persistent  bool
	Autostart   bool
	// ManagedSave: a start would restore a managed save image, with its old XML and paths.
	ManagedSave bool
	// Moved: the domain is off here because live migration moved its process to another host. As
	// far as this host knows, the domain runs there. A restart of libvirt loses this fact.
	Moved       bool
	Snapshots   int
	Checkpoints int
	// IOThreads: QEMU has, or will get, I/O threads, which may serve disks.
	IOThreads bool
	// MemoryBytes is the domain's maximum RAM.
	MemoryBytes int64
	// Occupied: a call on the domain's process is under way. Its caller may have given up, but the
	// call may still take effect.
	Occupied bool
	// Run distinguishes the process from earlier processes of the domain. It is 0 if the domain is
	// not active.
	Run int
	// Booted: the process started with empty RAM, and the domain was neither paused nor reverted
	// to a snapshot since. Otherwise the RAM may come from an earlier process.
	Booted bool
	// Live are the disks of the running process, nil if the domain is not active. Config are the
	// disks of the persistent definition, nil if the domain is transient.
	Live   []Disk
	Config []Disk
	// Files are the files that the running process, the persistent definition and a managed save
	// image name, disks' images included, each once. Only Domains fills it in.
	Files []DomainFile
	// FilesUnknown is why Files is incomplete; empty if it is complete.
	FilesUnknown string
}

// DomainFile is a file, a directory or a volume of a pool that a domain names.
type DomainFile struct {
	// What: the element (nvram) or the disk (cdrom sda) that names the file.
	What string
	// Path is the absolute path as written, or the name of a volume of a pool.
	Path string
	// Pool is the volume's pool; empty if Path is absolute.
	Pool string
}

// LiveDisk returns the live disk with this target (vda), nil if none.
func (d *Domain) LiveDisk(target string) *Disk { return findDisk(d.Live, target) }

// LimitedWith returns the targets of the other live disks in the disk's throttle group.
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

// ConfigDisk returns the disk of the persistent definition with this target, nil if none.
func (d *Domain) ConfigDisk(target string) *Disk { return findDisk(d.Config, target) }

func findDisk(disks []Disk, target string) *Disk {
	for i := range disks {
		if disks[i].Target == target {
			return &disks[i]
		}
	}
	return nil
}

// DomainDefinition is everything that a host needs to define a domain: the definition with its
// secrets, and the guest's UEFI variables (nil if it has none).
type DomainDefinition struct {
	Domain    string
	NVRAM     []byte
	Autostart bool
}

// Domains reads the domains of the host.
type Domains interface {
	// Domains lists every domain, active or defined. If some domains cannot be read, it returns
	// the others, and the error is an *Unreadable; see Readable.
	Domains(ctx context.Context) ([]Domain, error)
	// Domain reads one domain by UUID. It returns ErrNotFound if there is none.
	Domain(ctx context.Context, id string) (*Domain, error)
	// RunState returns the run state of a domain. It is faster than Domain: it reads no
	// definition.
	RunState(ctx context.Context, id string) (RunState, error)
	// TopImage returns the path of the disk's top image, in the process or, if the domain is not
	// active, in the persistent definition. It makes one libvirt call. It returns ErrUnavailable
	// also while an earlier call on the domain is unanswered.
	TopImage(ctx context.Context, id, target string) (string, error)
}
