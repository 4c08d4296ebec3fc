// SPDX-License-Identifier: Apache-2.0

// Package image is the image files and block devices of this host, by path:
// what they are, who holds them, making, folding and removing them. It puts
// qemuimg and the kernel behind the words of hv and api, and must not know what
// an image is wanted for.
package image
