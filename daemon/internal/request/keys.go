// SPDX-License-Identifier: Apache-2.0

package request

// The keys (op.Op.Keys) of all managers' ops. Ops with the same key exclude each other.

// InstanceKey is the key of ops that change the disks or the definition of an instance. A
// migration holds it for hours.
func InstanceKey(id string) string { return "instance/" + id }

// PowerKey is the key of ops that start, stop or pause an instance, or need it to stay off or on,
// and of ops that change the guard of an instance without a root volume.
func PowerKey(id string) string { return "power/" + id }

// VolumeKey is the key of ops on an unattached volume, and of ops that connect or disconnect a
// volume.
func VolumeKey(id string) string { return "volume/" + id }
