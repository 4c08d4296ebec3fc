// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/child"
	"github.com/volferry/volferry/daemon/internal/storagedaemon"
)

// ErrLocked means that another QEMU program has an image open in a way that excludes this use.
var ErrLocked = errors.New("another program of QEMU has it open")

const serveTimeout = 30 * time.Second

var errOpenTimeout = fmt.Errorf("%s did not open it within %v (%w)", storagedaemon.Program, serveTimeout, unix.ETIMEDOUT)

// ServeOptions are the options of Serve.
type ServeOptions struct {
	Writable bool
	// Is, if set, checks the open image before it is served. Its error ends Serve.
	Is         func(*os.File) error
	Passphrase []byte
}

// Serve serves an image, with those below it, by NBD as the export storagedaemon.ExportName. The
// server has the limits and locks of qemu-img, and dies with this process.
func Serve(ctx context.Context, img Image, opts ServeOptions) (*storagedaemon.Served, error) {
	if err := checkKey(opts.Passphrase, img); err != nil {
		return nil, err
	}
	o, err := open(img, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer o.close()
	if opts.Is != nil {
		if err := opts.Is(o.file); err != nil {
			return nil, err
		}
	}
	// On some filesystems, data in the page cache has no extents yet.
	for below := o; below != nil; below = below.below {
		if err := below.sync(); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, serveTimeout, errOpenTimeout)
	defer cancel()
	served := storagedaemon.Image{
		Node: o.node(0), Files: o.files(), Writable: opts.Writable, Env: childEnvironment(),
		DeathSignal: unix.SIGKILL, Confine: confine, Start: starter(),
	}
	if opts.Passphrase != nil {
		key, err := storagedaemon.SecretFile(opts.Passphrase)
		if err != nil {
			return nil, err
		}
		defer func() { _ = key.Close() }()
		served.Objects = []string{secretObject(childFile(len(served.Files)))}
		served.Files = append(served.Files, key)
	}
	conn, err := storagedaemon.Serve(ctx, served)
	if err != nil {
		return nil, serveError(img, o.files(), err)
	}
	return conn, nil
}

func serveError(img Image, files []*os.File, err error) error {
	ended := (*storagedaemon.EndedError)(nil)
	switch {
	case errors.Is(err, child.ErrNotInstalled):
		return fmt.Errorf("%w; install it with QEMU (on Debian qemu-system-common)", err)
	case errors.As(err, &ended) && strings.Contains(ended.Said, " lock"):
		return fmt.Errorf("%w: %s", ErrLocked, inOurWords(ended.Said, files))
	case errors.As(err, &ended):
		return &ImageError{img.Path, "it cannot be opened: " + inOurWords(ended.Said, files)}
	}
	return fmt.Errorf("open %s: %w", img.Path, err)
}

// node returns the options of QEMU's block node for the image and the images below it. QEMU opens
// no image that only a header names: the end of the chain is explicit too.
func (o *opened) node(number int) map[string]any {
	file := map[string]any{"driver": o.protocol, "filename": childFile(number), "discard": "unmap"}
	node := map[string]any{"driver": o.driver(), "file": file, "cache": map[string]any{"direct": o.cacheMode() == cacheNone}, "discard": "unmap"}
	switch {
	case o.below != nil:
		below := o.below.node(number + 1)
		below["read-only"] = true
		node["backing"] = below
	case o.Format == FormatQCOW2:
		node["backing"] = nil
	}
	switch {
	case o.LUKS && o.Format == FormatRaw:
		node["key-secret"] = keyID
	case o.LUKS:
		node["encrypt"] = map[string]any{"format": formatLUKS, "key-secret": keyID}
	}
	if o.SliceBytes != 0 {
		node["offset"], node["size"] = 0, o.SliceBytes
	}
	return node
}
