// SPDX-License-Identifier: Apache-2.0

// Package qemuimg is the only place that runs qemu-img. It owns the command lines, the children
// (their limits and their death) and a strict reader of qcow2 headers.
//
// Four rules hold for everything here:
//
//   - A format is stated, never probed: a guest may write any header into its raw volume. Every
//     command line names the format of every image.
//   - Images are passed as driver options (file.filename=...), so that no path can be read as a
//     protocol or as a json: description.
//   - This package reads a qcow2 header before qemu-img sees the file: an external data file or an
//     unexpected backing file would make qemu-img read or write another file of the host.
//   - A child opens an image by an inherited descriptor that this package has opened and checked,
//     never by its path, which may be another file's by then. A child gets only one path, of a new
//     overlay's backing image, which it does not open (create -u).
package qemuimg
