// SPDX-License-Identifier: Apache-2.0

// Package image handles the image files and block devices of this host, by path: it finds their
// type and their holders, and makes, folds and removes them.
package image
