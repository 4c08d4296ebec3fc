// SPDX-License-Identifier: Apache-2.0

package request

// InstanceKey is the key of ops that change an instance's disks or definition. A migration holds
// it for hours.
func InstanceKey(id string) string { return "instance/" + id }

// PowerKey is the key of ops that start, stop or pause an instance, or need it to stay off or on.
// Ops that change the guard (which refuses the start) of an instance without a root volume also
// have it.
func PowerKey(id string) string { return "power/" + id }

// VolumeKey is the key of ops on an unattached volume, and of ops that connect or disconnect a
// volume.
func VolumeKey(id string) string { return "volume/" + id }
