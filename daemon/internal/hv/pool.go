// SPDX-License-Identifier: Apache-2.0

package hv

// PoolInfo is a storage pool of this host. Path is empty where pools of its type have none.
type PoolInfo struct {
	Name          string
	Type          string
	Path          string
	Active        bool
	CapacityBytes int64
	FreeBytes     int64
}

// PoolVolume is one volume of a pool.
type PoolVolume struct {
	Name          string
	Path          string
	Format        string
	CapacityBytes int64
	Block         bool
}
