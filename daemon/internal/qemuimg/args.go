// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"slices"
	"strconv"
)

// The command lines. Every function of this file returns one, beginning with
// the verb, and every image in it is preceded by its format or is a
// description that begins with driver=; a test walks them all.

// overlayOptions: a subcluster of 2 KiB keeps a random 4 KiB write from copying
// 64 KiB (14 times fewer bytes written). Without lazy_refcounts QEMU flushes the data before the
// entry that names it, and that again: the second flush is what a guest waits for, half of its
// first write to a place, but where the power is cut between the two, what was there before is
// there still. With them a write that was not answered yet could be neither old nor new.
const overlayOptions = "compat=1.1,cluster_size=64k,extended_l2=on"

// encryptOptions are those of an overlay over a LUKS container, before for how many milliseconds of
// a processor its passphrase is hashed.
const encryptOptions = ",encrypt.format=" + formatLUKS + ",encrypt.key-secret=" + keyID + ",encrypt.iter-time="

// withKey is a command line with the key that the child has open by this name.
func withKey(args []string, file string) []string {
	return slices.Insert(slices.Clone(args), 1, "--object", secretObject(file))
}

// createOverlayArgs does not open the backing image (-u): it may be in use. hashMS is that of an
// encrypted one.
func createOverlayArgs(path string, backing Image, sizeBytes, hashMS int64) []string {
	options := overlayOptions
	if backing.LUKS {
		options += encryptOptions + strconv.FormatInt(hashMS, 10)
	}
	return []string{
		"create", "-q", "-u", "-f", FormatQCOW2, "-o", options,
		"-F", backing.driver(), "-b", backing.Path, path, strconv.FormatInt(sizeBytes, 10),
	}
}

// createOptions are those of an image that is no overlay.
const createOptions = "compat=1.1"

// createArgs does not open the backing image (-u), if there is one.
func createArgs(path string, backing *Image, sizeBytes int64) []string {
	args := []string{"create", "-q", "-f", FormatQCOW2, "-o", createOptions}
	if backing != nil {
		args = append(args, "-u", "-F", backing.driver(), "-b", backing.Path)
	}
	return append(args, path, strconv.FormatInt(sizeBytes, 10))
}

// measureArgs asks how large an image gets, and opens none.
func measureArgs(options string, sizeBytes int64) []string {
	return []string{"measure", "--output", "json", "-O", FormatQCOW2, "-o", options, "--size", strconv.FormatInt(sizeBytes, 10)}
}

func resizeArgs(path string, sizeBytes int64) []string {
	return []string{"resize", "-q", "-f", FormatQCOW2, path, strconv.FormatInt(sizeBytes, 10)}
}

// commitArgs has the image to commit into as the overlay's backing node, in the place of
// what the overlay's header names, and keeps the overlay as it is (-d): the same
// command can run again.
func commitArgs(overlayOpts, intoOpts, cache string) []string {
	return []string{"commit", "-p", "-d", "-t", cache, "--image-opts", overlayOpts + "," + intoOpts}
}
