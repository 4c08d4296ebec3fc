// SPDX-License-Identifier: Apache-2.0

package request

// The keys (op.Op.Keys) by which the ops of all managers exclude each other.

// InstanceKey is the key of ops that change what an instance is made of. A migration
// holds it for hours.
func InstanceKey(id string) string { return "instance/" + id }

// PowerKey is the key of ops that start, stop, pause or need an instance to stay
// off or on. Whatever changes the guard of an instance without a root volume has it too.
func PowerKey(id string) string { return "power/" + id }

// VolumeKey is the key of ops on a volume that is at no instance, and of those that
// connect it or end that.
func VolumeKey(id string) string { return "volume/" + id }
