// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/child"
	"github.com/volferry/volferry/daemon/internal/storagedaemon"
	"github.com/volferry/volferry/internal/medium"
)

const serveTimeout = 20 * time.Second

// Serve serves an image by NBD as the export storagedaemon.ExportName. An image that is served for
// writing must have the exclusive lock, which stops the writes of an earlier server that may still
// run.
func (h *Host) Serve(ctx context.Context, image medium.RBDImage, writable bool, key *os.File) (*storagedaemon.Served, error) {
	c, err := h.cluster(ctx, image, key)
	if err != nil {
		return nil, err
	}
	info, err := c.look(ctx, image, key)
	if err != nil {
		return nil, err
	}
	if err := info.whole(image); err != nil {
		return nil, err
	}
	if err := info.fence(image); writable && err != nil {
		return nil, err
	}
	return c.serve(ctx, image, writable, key)
}

func (c Cluster) serve(ctx context.Context, image medium.RBDImage, writable bool, key *os.File) (*storagedaemon.Served, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, serveTimeout, ErrNoAnswer)
	defer cancel()
	served, err := storagedaemon.Serve(ctx, storagedaemon.Image{
		Node: c.node(image), Objects: []string{"secret,id=key,format=base64,file=" + keyPath}, Files: []*os.File{key},
		Writable: writable, Env: environment, DeathSignal: unix.SIGTERM,
	})
	if ended := (*storagedaemon.EndedError)(nil); errors.As(err, &ended) && strings.Contains(ended.Said, noDriver) {
		return nil, errNoDriver
	}
	if notThere := notInstalled(err); notThere != nil {
		return nil, notThere
	}
	return served, err
}

// node returns the options of QEMU's block node for the image. They do not contain the key.
func (c Cluster) node(image medium.RBDImage) map[string]any {
	type address struct {
		Host string `json:"host"`
		Port string `json:"port"`
	}
	var monitors []address
	for _, m := range c.Monitors {
		host, port, _ := net.SplitHostPort(m) // Check has checked it
		monitors = append(monitors, address{host, port})
	}
	return map[string]any{
		"driver": "rbd", "pool": image.Pool, "image": image.Name, "conf": confFile(),
		"server": monitors, "user": c.User, "key-secret": "key", "discard": "unmap", "cache": map[string]any{"direct": true},
	}
}

func notInstalled(err error) error {
	if !errors.Is(err, child.ErrNotInstalled) {
		return nil
	}
	return fmt.Errorf("%w; install it with QEMU (on Debian qemu-system-common), and the RBD driver (qemu-block-extra)", err)
}

const noDriver = "Unknown driver 'rbd'"

var errNoDriver = fmt.Errorf("%s has no RBD driver; install it (on Debian qemu-block-extra)", storagedaemon.Program)
