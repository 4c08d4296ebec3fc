// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"slices"
	"strconv"
)

// Every function of this file returns a command line that begins with the verb. Each image in it
// has its format before it, or is a description that begins with driver=; a test checks all of
// them.

// overlayOptions: with subclusters of 2 KiB a random 4 KiB write does not copy 64 KiB (14 times
// fewer bytes written). Without lazy_refcounts QEMU flushes the data before the table entry that
// points to it. That takes half of the time of a cluster's first write, but after a power cut an
// unacknowledged write reads as the old data; with lazy_refcounts it could read as neither old nor
// new data.
const overlayOptions = "compat=1.1,cluster_size=64k,extended_l2=on"

// encryptOptions encrypt an overlay over a LUKS container. The caller appends the CPU time for
// hashing the passphrase, in milliseconds.
const encryptOptions = ",encrypt.format=" + formatLUKS + ",encrypt.key-secret=" + keyID + ",encrypt.iter-time="

func withKey(args []string, file string) []string {
	return slices.Insert(slices.Clone(args), 1, "--object", secretObject(file))
}

// createOverlayArgs returns the command line that makes an overlay. It does not open the backing
// image (-u), which may be in use. hashMS is LUKS's iter-time in milliseconds, only for an
// encrypted image.
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

const createOptions = "compat=1.1"

// createArgs returns the command line that makes a qcow2 image. It does not open the backing image
// (-u).
func createArgs(path string, backing *Image, sizeBytes int64) []string {
	args := []string{"create", "-q", "-f", FormatQCOW2, "-o", createOptions}
	if backing != nil {
		args = append(args, "-u", "-F", backing.driver(), "-b", backing.Path)
	}
	return append(args, path, strconv.FormatInt(sizeBytes, 10))
}

func measureArgs(options string, sizeBytes int64) []string {
	return []string{"measure", "--output", "json", "-O", FormatQCOW2, "-o", options, "--size", strconv.FormatInt(sizeBytes, 10)}
}

func resizeArgs(path string, sizeBytes int64) []string {
	return []string{"resize", "-q", "-f", FormatQCOW2, path, strconv.FormatInt(sizeBytes, 10)}
}

// commitArgs returns the command line that commits into the target image, instead of the image in
// the overlay's header. The overlay stays unchanged (-d), so that the command can be repeated.
func commitArgs(overlayOpts, intoOpts, cache string) []string {
	return []string{"commit", "-p", "-d", "-t", cache, "--image-opts", overlayOpts + "," + intoOpts}
}
