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
	// Program is the name of the server's program.
	Program = "qemu-storage-daemon"
	// ExportName is the export name of a served image.
	ExportName = "image"
)

// Image is an image to serve.
type Image struct {
	// Node has the options of QEMU's block node for the image, as for blockdev-add. Objects has
	// the options of the objects that Node names.
	Node    map[string]any
	Objects []string
	// Files are open files for the server, named by child.FileName.
	Files []*os.File
	// Writable is true if the image is written. An image file is then the first of Files.
	Writable bool
	// Env is the environment of the server.
	Env []string
	// DeathSignal is the signal that the server gets when this process dies.
	DeathSignal syscall.Signal
	// Confine, if not nil, is called with the id of the started process.
	Confine func(pid int) error
	// Start starts the server; nil means child.Start.
	Start child.Starter
}

func (i *Image) arguments() []string {
	node := map[string]any{"node-name": "node", "read-only": !i.Writable, "auto-read-only": false}
	maps.Copy(node, i.Node)
	text, _ := json.Marshal(node) // only texts and numbers
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

// heap makes the server's allocator keep freed memory. QEMU allocates a buffer for each request,
// and the page faults of a new 1 MiB buffer take several times as long as filling it.
var heap = []string{"MALLOC_MMAP_THRESHOLD_=33554432", "MALLOC_TRIM_THRESHOLD_=134217728"}

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
