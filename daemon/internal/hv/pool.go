// SPDX-License-Identifier: Apache-2.0

package hv

import "context"

// ConnectorPool is the type of pools with volumes made by a connector, not by libvirt.
const ConnectorPool = "connector"

// PoolInfo is a storage pool of this host. Path is empty for pool types without a path.
type PoolInfo struct {
	Name          string
	Type          string
	Path          string
	Active        bool
	CapacityBytes int64
	FreeBytes     int64
	// Problem is why a connector's pool is not active, or a warning about an active pool.
	Problem string
	// Extends: ExtendVolume can grow volumes of the pool.
	Extends bool
	// NoCreate: CreateVolume and DeleteVolume do not work in the pool: its volumes are made and
	// deleted at its target.
	NoCreate bool
}

// PoolVolume is one volume of a pool.
type PoolVolume struct {
	Name          string
	Path          string
	Format        string
	CapacityBytes int64
	Block         bool
	// OpID is the op that made the volume (WithOp), if its pool records it.
	OpID string
}

type opKey struct{}

// WithOp returns a context for work on behalf of an op.
func WithOp(ctx context.Context, opID string) context.Context {
	return context.WithValue(ctx, opKey{}, opID)
}

// OpOf returns the op of the context, "" if it has none.
func OpOf(ctx context.Context) string {
	id, _ := ctx.Value(opKey{}).(string)
	return id
}

// DeviceCopy is a copy that a storage can make by itself between two of its volumes.
type DeviceCopy struct {
	Pool      string
	Src, Dst  DeviceCopyEnd
	SizeBytes int64
	// GranularityBytes: the offset and length of every range are multiples of it.
	GranularityBytes int64
	// Offered: the storage may get new requests to copy. Without it, only a range without an
	// answer is requested again.
	Offered bool
}

// DeviceCopyEnd is one of the two devices, by its path and its identity.
type DeviceCopyEnd struct{ Path, Identity string }

// Pools lists the storage pools, and makes, finds, grows and deletes their volumes.
type Pools interface {
	// Pools lists the storage pools.
	Pools(ctx context.Context) ([]PoolInfo, error)
	// RoundedBytes returns the size that a raw volume of sizeBytes gets in a pool. In a pool with
	// extents, it makes the smallest volume to learn the size, and deletes it. It returns
	// ErrNotFound as CreateVolume does.
	RoundedBytes(ctx context.Context, pool string, sizeBytes int64) (int64, error)
	// CreateVolume makes a pool volume of exactly sizeBytes, over the first of the backing images
	// if there are any. It returns ErrExists if the name is taken, and ErrNotFound if the pool
	// does not exist or is not active.
	CreateVolume(ctx context.Context, pool, name, format string, sizeBytes int64, backing []Image) (*PoolVolume, error)
	// LookupVolume finds a pool volume by name, after a refresh of the pool. It returns
	// ErrNotConnected if the pool may have the volume, but it is not connected.
	LookupVolume(ctx context.Context, pool, name string) (*PoolVolume, error)
	// VolumeAt returns the name of the active pool that has a volume with exactly this path,
	// without following links. It returns ErrNotFound if there is none.
	VolumeAt(ctx context.Context, path string) (pool string, err error)
	// DeleteVolume deletes a pool volume. It returns nil if the volume does not exist.
	DeleteVolume(ctx context.Context, pool, name string) error
	// ExtendVolume makes a volume of a pool with Extends exactly sizeBytes large, a multiple of
	// the unit of RoundedBytes. The added bytes read as zeros. It returns nil if the volume has
	// this size, and never shrinks one. A guest with the volume open does not see the new size
	// before GrowDisk. It returns ErrUnsupported in other pools.
	ExtendVolume(ctx context.Context, pool, name string, sizeBytes int64) error
}
