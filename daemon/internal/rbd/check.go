// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/volferry/volferry/daemon/internal/child"
	"github.com/volferry/volferry/daemon/internal/storagedaemon"
	"github.com/volferry/volferry/internal/medium"
)

// Check returns an error if there is a problem with the access to a cluster: its tools, monitors,
// user or id.
func (h *Host) Check(ctx context.Context, id string, key *os.File) error {
	all, err := h.Clusters()
	if err != nil {
		return err
	}
	c, err := all.Find(medium.RBDImage{Cluster: id})
	if err != nil {
		return err
	}
	if err := checkServer(ctx, key); err != nil {
		return err
	}
	h.mu.Lock()
	delete(h.known, fmt.Sprint(id, c))
	h.mu.Unlock()
	return h.checkID(ctx, id, c, key)
}

// checkServer checks that qemu-storage-daemon has the RBD driver. With a nonexistent key the
// program fails before it connects to anything.
func checkServer(ctx context.Context, key *os.File) error {
	ctx, cancel := context.WithTimeoutCause(ctx, toolTimeout, ErrNoAnswer)
	defer cancel()
	var out bytes.Buffer
	server := program(key, storagedaemon.Program, "--blockdev", `{"driver":"rbd","node-name":"node","pool":"none","image":"none","key-secret":"none"}`)
	server.Stdout, server.Stderr = &out, &out
	err := child.Run(ctx, child.Start, server)
	if notThere := notInstalled(err); notThere != nil {
		return notThere
	}
	if strings.Contains(out.String(), noDriver) {
		return errNoDriver
	}
	return nil
}
