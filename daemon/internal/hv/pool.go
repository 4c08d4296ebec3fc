// SPDX-License-Identifier: Apache-2.0

package hv

import "context"

// ConnectorPool is the type of pools that are not libvirt's: a connector, a program of the
// storage's, makes their volumes.
const ConnectorPool = "connector"

// PoolInfo is a storage pool of this host. Path is empty where pools of its type have none.
type PoolInfo struct {
	Name          string
	Type          string
	Path          string
	Active        bool
	CapacityBytes int64
	FreeBytes     int64
	// Problem is why a pool of a connector is not active, or, of one that is, what an operator
	// should look at.
	Problem string
	// Extends: ExtendVolume makes volumes of the pool larger.
	Extends bool
	// NoCreate: CreateVolume makes no volumes in the pool, and DeleteVolume deletes none. It has
	// those that its target has.
	NoCreate bool
}

// PoolVolume is one volume of a pool.
type PoolVolume struct {
	Name          string
	Path          string
	Format        string
	CapacityBytes int64
	Block         bool
	// OpID is the op in whose context the volume was made (WithOp), if its pool keeps that.
	OpID string
}

type opKey struct{}

// WithOp returns the context of what is done for an op.
func WithOp(ctx context.Context, opID string) context.Context {
	return context.WithValue(ctx, opKey{}, opID)
}

// OpOf returns the op that something is done for, "" if it is for none.
func OpOf(ctx context.Context) string {
	id, _ := ctx.Value(opKey{}).(string)
	return id
}

// DeviceCopy is a copy that a storage could make between two of its volumes.
type DeviceCopy struct {
	// Pool is the pool that has both.
	Pool string
	// Src and Dst are the devices, which are SizeBytes large.
	Src, Dst DeviceCopyEnd
	// SizeBytes is the size of both.
	SizeBytes int64
	// GranularityBytes is what ranges are multiples of.
	GranularityBytes int64
	// Offered says that the storage may be asked for it. A range that was asked for before, and was
	// not answered, is asked for in any case.
	Offered bool
}

// DeviceCopyEnd is a device at its path.
type DeviceCopyEnd struct{ Path, Identity string }
