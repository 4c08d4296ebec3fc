// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

const filesTimeout = 3 * time.Second

var errNoAnswer = errors.New("the storage of a file that a domain names does not answer")

type namedFiles struct {
	real    map[string]string
	beneath map[string][]string
	unread  map[string]error
}

type placed struct {
	name string
	at   *api.Location
}

func (n *namedFiles) at(path string) string {
	if real, ok := n.real[path]; ok {
		return real
	}
	return path
}

// fileLooker reads files, in one goroutine at a time: storage that does not answer may block a
// read for ever.
type fileLooker struct{ busy atomic.Bool }

func (l *fileLooker) look(ctx context.Context, pools []api.Pool, doms []hv.Domain, attachments []api.Attachment, volumes []placed) (*namedFiles, error) {
	if l.busy.Swap(true) {
		return nil, errNoAnswer
	}
	seen := make(chan *namedFiles, 1)
	go func() {
		defer l.busy.Store(false)
		seen <- lookAtFiles(pools, doms, attachments, volumes)
	}()
	timer := time.NewTimer(filesTimeout)
	defer timer.Stop()
	select {
	case n := <-seen:
		return n, nil
	case <-timer.C:
		return nil, errNoAnswer
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
	}
}

func lookAtFiles(pools []api.Pool, doms []hv.Domain, attachments []api.Attachment, volumes []placed) *namedFiles {
	n := &namedFiles{real: map[string]string{}, beneath: map[string][]string{}, unread: map[string]error{}}
	for i := range pools {
		n.follow(pools[i].Path)
	}
	for i := range volumes {
		for _, image := range imagesAt(volumes[i].at) {
			n.follow(image)
		}
	}
	mine := map[string]bool{}
	for i := range attachments {
		for _, image := range imagesAt(&attachments[i].Location) {
			n.follow(image)
			mine[image] = true
		}
	}
	for i := range doms {
		for _, f := range doms[i].Files {
			if f.Pool == "" {
				n.follow(f.Path)
			}
		}
		for k := range doms[i].Config {
			if disk := &doms[i].Config[k]; !mine[disk.Top().Path] {
				n.lookBeneath(disk)
			}
		}
	}
	return n
}

func (n *namedFiles) follow(path string) {
	if !filepath.IsAbs(path) {
		return
	}
	if real, err := filepath.EvalSymlinks(path); err == nil && real != filepath.Clean(path) {
		n.real[path] = real
	}
}

func (n *namedFiles) lookBeneath(disk *hv.Disk) {
	top := disk.Top().Path
	paths, err := location.Beneath(disk)
	if err != nil {
		n.unread[top] = err
	}
	for _, path := range paths {
		n.follow(path)
	}
	if len(paths) > 0 {
		n.beneath[top] = paths
	}
}

func imagesAt(l *api.Location) []string {
	paths := []string{l.Path}
	for _, base := range l.Backing.Images() {
		paths = append(paths, base.Path)
	}
	return paths
}
