// SPDX-License-Identifier: Apache-2.0

package storagedaemon

import (
	"encoding/json"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"syscall"

	"github.com/volferry/volferry/daemon/internal/child"
)

const (
	// Program serves an image.
	Program = "qemu-storage-daemon"
	// ExportName is that of the export of a served image.
	ExportName = "image"
)

// Image is what is served.
type Image struct {
	// Node are the options of QEMU's block node with the image, as of blockdev-add, and Objects
	// those of the objects that it names.
	Node    map[string]any
	Objects []string
	// Files are open files that the server gets. Options call them by child.FileName.
	Files []*os.File
	// Writable: the image is written to, which is the first of Files if it is a file.
	Writable bool
	// Env is the environment of the server.
	Env []string
	// DeathSignal is what the server gets from the kernel when this process dies.
	DeathSignal syscall.Signal
	// Confine, if set, is called with the number of the process, which has just begun.
	Confine func(pid int) error
	// Start starts the server; nil is child.Start.
	Start child.Starter
}

// arguments of the server, whose socket is its last file.
func (i *Image) arguments() []string {
	node := map[string]any{"node-name": "node", "read-only": !i.Writable, "auto-read-only": false}
	maps.Copy(node, i.Node)
	text, _ := json.Marshal(node) // of texts and numbers
	mode := "off"
	if i.Writable {
		mode = "on"
	}
	var args []string
	for _, object := range i.Objects {
		args = append(args, "--object", object)
	}
	return append(args,
		"--blockdev", string(text),
		"--nbd-server", "addr.type=fd,addr.str="+strconv.Itoa(child.Descriptor(len(i.Files))),
		"--export", "type=nbd,id=export,node-name=node,name="+ExportName+",writable="+mode+",allocation-depth=on",
	)
}

// heap has the server's allocator keep what it has had: QEMU allocates a buffer for each request,
// and to touch a new one of 1 MiB, page by page, takes several times as long as to fill it.
var heap = []string{"MALLOC_MMAP_THRESHOLD_=33554432", "MALLOC_TRIM_THRESHOLD_=134217728"}

// command is the server, with nothing of ours in its environment.
func (i *Image) command(listening *os.File, stderr io.Writer) child.Command {
	var written []int
	if i.Writable {
		written = []int{0}
	}
	return child.Command{
		Program: Program, Args: i.arguments(), Env: append(slices.Clone(i.Env), heap...),
		Files: append(slices.Clone(i.Files), listening), Written: written, Stderr: stderr,
		DeathSignal: i.DeathSignal, Confine: i.Confine,
	}
}
