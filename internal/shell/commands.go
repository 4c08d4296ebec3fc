// SPDX-License-Identifier: Apache-2.0

package shell

import "strconv"

// AttachVolume returns the command that attaches a volume to an instance, at a device or as its
// root.
func AttachVolume(volume, instance, device string, root, readOnly bool) string {
	words := []string{"volferryctl", "volume", "attach", volume, instance}
	if root {
		words = append(words, "--root")
	} else {
		words = append(words, "--device", device)
	}
	if readOnly {
		words = append(words, "--mode", "ro")
	}
	return Line(words...)
}

// ExtendVolume returns the command that extends a logical volume of LVM.
func ExtendVolume(device string, sizeBytes int64) string {
	return Line("lvextend", "--size", strconv.FormatInt(sizeBytes, 10)+"b", "--", device)
}

// DefineAgain returns the commands that restore the deleted definition of a running guest.
func DefineAgain(instance string) string {
	file := "./" + instance + ".xml"
	return "`" + Line("virsh", "dumpxml", "--security-info", "--", instance) + " > " + Line(file) + "`, then `" + Line("virsh", "define", "--", file) + "`"
}

// Unpause returns the command that resumes a guest after the pivot of a disk while the guest was
// suspended. With a lock manager, libvirt then refuses `virsh resume` because of a lease of the
// guest itself.
func Unpause(instance string) string {
	return Line("volferryctl", "instance", "unpause", instance)
}
