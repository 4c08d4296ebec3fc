// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"path/filepath"

	"github.com/volferry/volferry/internal/api"
)

// ID returns a UUID with the kind of object as its first group.
func ID(kind string, n int) string { return fmt.Sprintf("%s-0000-4000-8000-%012d", kind, n) }

// NamedID returns the ID for a kind and a name of up to six bytes.
func NamedID(kind, name string) string { return fmt.Sprintf("%s-0000-4000-8000-%012x", kind, name) }

// The kinds of ids.
const (
	HostKind       = "10000000"
	InstanceKind   = "20000000"
	VolumeKind     = "30000000"
	AttachmentKind = "40000000"
	MigrationKind  = "50000000"
)

// Size is the size of every volume.
const Size = int64(1 << 20)

// The ids of the objects in a Site.
var (
	HostA = ID(HostKind, 1)
	HostB = ID(HostKind, 2)
	// Web and App are instances of host a, DB is an instance of host b.
	Web = ID(InstanceKind, 1)
	App = ID(InstanceKind, 2)
	DB  = ID(InstanceKind, 3)
	// Root is attached to Web by RootAt. Data is an available volume on host a. Disk is an
	// available volume of the multiattach type gold in the shared pool nfs, Local one in the pool
	// fast of host a.
	Root   = ID(VolumeKind, 1)
	Data   = ID(VolumeKind, 2)
	Disk   = ID(VolumeKind, 3)
	Local  = ID(VolumeKind, 4)
	RootAt = ID(AttachmentKind, 1)
	// RootTo is the dst attachment of Move, the migration of Root.
	RootTo = ID(AttachmentKind, 2)
	Move   = ID(MigrationKind, 1)
	// First and Next are attachments for tests to make.
	First = ID(AttachmentKind, 21)
	Next  = ID(AttachmentKind, 22)
)

// RootSlot is the reported definition of the root disk.
var RootSlot = api.SlotDefinition{Disk: "<disk><target dev='vda' bus='virtio'/></disk>", SerialOfVolume: true}

// At returns a location in the pool that is named like the path's directory.
func At(path string) api.Location {
	return api.Location{Pool: filepath.Base(filepath.Dir(path)), Name: filepath.Base(path), Path: path, Format: api.FormatRaw, SizeBytes: Size}
}

// WebRegister returns the request that adopts instance web.
func WebRegister() api.InstanceRegister {
	zero := 0
	return api.InstanceRegister{
		ID: Web, Name: "web", Host: "a", State: api.InstanceRunning,
		Disks: []api.AdoptedDisk{{
			VolumeID: Root, VolumeName: "root", AttachmentID: RootAt, Device: "vda", BootIndex: &zero, Mode: api.ModeRW, Location: At("/fast/root"),
		}},
		Slots: []api.BlockDeviceMapping{{Device: "sda", Note: "not a volume: it is a cdrom"}},
	}
}

// DataRegister returns the request that registers volume data.
func DataRegister() api.VolumeRegister {
	return api.VolumeRegister{ID: Data, Name: "data", Status: api.VolumeAvailable, Host: HostA, Location: At("/fast/data")}
}

// Dir returns an active pool of files in the directory /name.
func Dir(name string) api.Pool {
	return api.Pool{Name: name, Type: "dir", Path: "/" + name, Active: true}
}

// NFS returns an active shared pool.
func NFS(name string) api.Pool {
	return api.Pool{Name: name, Type: "netfs", Path: "/" + name, Active: true, Shared: true, Multiattach: true}
}

// ClusterPools returns the pools that a host of NewCluster reports.
func ClusterPools() []api.Pool {
	return []api.Pool{
		{Name: "fast", Type: "dir", Path: "/fast", Active: true, Multiattach: true, CapacityBytes: 100, FreeBytes: 50},
		{Name: "slow", Type: "dir", Path: "/slow", Active: true, Multiattach: true, CapacityBytes: 100, FreeBytes: 60},
		{Name: "thin", Type: "logical", Path: "/thin", Active: true, CapacityBytes: 100, FreeBytes: 90},
		{Name: "nfs", Type: "netfs", Path: "/nfs", Active: true, Shared: true, Multiattach: true, CapacityBytes: 100, FreeBytes: 10},
	}
}

// RootMigration returns the request that registers the migration of root.
func RootMigration() api.MigrationRegister {
	return api.MigrationRegister{
		ID: Move, VolumeID: Root, SrcAttachmentID: RootAt, DstAttachmentID: RootTo, Host: HostA, Epoch: 1, Generation: 1,
		Dst: At("/slow/root"), Method: "overlay", OpID: "op-1",
	}
}

// DataMigration returns the request that registers a migration of data, an unattached volume.
func DataMigration() api.MigrationRegister {
	return api.MigrationRegister{
		ID: ID(MigrationKind, 2), VolumeID: Data, Host: HostA, Epoch: 1, Generation: 1, Dst: At("/slow/data"), Method: "offline",
	}
}

// DiskMigration returns the request that registers a migration of disk, an unattached volume.
func DiskMigration() api.MigrationRegister {
	in := DataMigration()
	in.VolumeID, in.Dst = Disk, At("/slow/disk")
	return in
}

// MigrationStep returns host a's request for a transition of a migration.
func MigrationStep(to api.MigrationState, from ...api.MigrationState) api.MigrationTransition {
	return api.MigrationTransition{From: from, To: to, Host: HostA, Epoch: 1}
}

// Reserve returns the request to reserve disk for app. edit, if not nil, changes the request.
func Reserve(edit func(*api.AttachmentReserve)) api.AttachmentReserve {
	in := api.AttachmentReserve{
		ID: First, VolumeID: Disk, InstanceID: App, Device: "vdb", Mode: api.ModeRW, Host: HostA, Epoch: 1, Generation: 1, OpID: "op-a",
	}
	if edit != nil {
		edit(&in)
	}
	return in
}

// AtDB changes a request to instance db, which is on host b.
func AtDB(in *api.AttachmentReserve) { in.ID, in.InstanceID, in.Host = Next, DB, HostB }

// AtWeb changes a request to instance web, which is on host a like app.
func AtWeb(in *api.AttachmentReserve) { in.ID, in.InstanceID = Next, Web }

// AttachmentStep returns host a's request for a transition of an attachment.
func AttachmentStep(to api.AttachmentState, from ...api.AttachmentState) api.AttachmentTransition {
	return api.AttachmentTransition{From: from, To: to, Host: HostA, Epoch: 1, OpID: "op-" + string(to)}
}

// Release returns host a's request to release an attachment.
func Release(force bool) api.AttachmentRelease {
	return api.AttachmentRelease{Host: HostA, Epoch: 1, OpID: "op-r", Force: force}
}
