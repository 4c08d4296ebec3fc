// SPDX-License-Identifier: Apache-2.0

package hv

import "context"

// Definitions reads, makes and removes persistent definitions.
type Definitions interface {
	// DomainDefinition reads the persistent definition of a domain. It returns ErrUnsupported for
	// a transient domain, and for a domain that depends on more of its host than images, pools and
	// NVRAM (passed-through devices, shared directories, QEMU options, sockets or files of its
	// own, a medium in a drive): another host could not define it, or the author of the definition
	// would get access to that host.
	DomainDefinition(ctx context.Context, id string) (DomainDefinition, error)
	// ParseDisk reads a disk that DiskDefinition returned, on this host or another.
	ParseDisk(definition string) (Disk, error)
	// DefineDomain defines the persistent domain id from a result of DomainDefinition, on this
	// host or another. disks replace all disks of the definition except CD-ROM and floppy drives.
	// The definition's NVRAM, if any, replaces the existing NVRAM. It returns ErrExists if a
	// domain has this id or name, and ErrUnsupported for a definition that DomainDefinition would
	// not return. If it returns an error, it has defined nothing.
	DefineDomain(ctx context.Context, id string, def DomainDefinition, disks []DiskSpec) error
	// UndefineDomain removes the definition of a domain that is off, but not its images and NVRAM.
	// It returns nil if the domain does not exist, ErrActive if it is active, and ErrBusy if it
	// has a managed save image, snapshots or checkpoints.
	UndefineDomain(ctx context.Context, id string) error
}
