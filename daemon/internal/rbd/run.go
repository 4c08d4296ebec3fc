// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/child"
	"github.com/volferry/volferry/daemon/internal/storagedaemon"
)

const (
	// toolTimeout is how long a Ceph tool may take; a request waits for 15 s
	// (request.DefaultTimeout). By default the tools wait for a monitor for five minutes, and for
	// an OSD forever.
	toolTimeout = 10 * time.Second
	// keyPath is a program's path of the key, which is its first file after stderr.
	keyPath = "/proc/self/fd/3"
)

// ErrNoAnswer means that a cluster does not answer. It is an I/O error, like a device's.
var ErrNoAnswer = fmt.Errorf("the cluster does not answer (%w)", unix.ETIMEDOUT)

type toolError struct {
	tool   string
	err    error
	stderr string
}

func (e *toolError) Error() string {
	if e.stderr == "" {
		return fmt.Sprintf("%s: %v", e.tool, e.err)
	}
	return fmt.Sprintf("%s: %s", e.tool, e.stderr)
}

func (e *toolError) Unwrap() error { return e.err }

var environment = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}

// program returns a command that finds the key at keyPath, gets nothing of this process's
// environment, and dies with this process.
func program(key *os.File, name string, args ...string) child.Command {
	return child.Command{Program: name, Args: args, Env: environment, Files: []*os.File{key}, DeathSignal: syscall.SIGKILL}
}

func (c Cluster) output(ctx context.Context, key *os.File, tool string, args ...string) ([]byte, error) {
	return c.run(ctx, toolTimeout, key, tool, args...)
}

func (c Cluster) run(ctx context.Context, timeout time.Duration, key *os.File, tool string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, ErrNoAnswer)
	defer cancel()
	cmd := program(key, tool, append([]string{
		"--conf", confFile(), "-m", strings.Join(c.Monitors, ","), "--id", c.User, "--keyfile", keyPath,
	}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := child.Run(ctx, child.Start, cmd)
	switch {
	case errors.Is(err, child.ErrNotInstalled):
		return nil, fmt.Errorf("%w; install the package ceph-common", err)
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("%s: %w", tool, context.Cause(ctx))
	case err != nil:
		return nil, &toolError{tool, err, storagedaemon.OneLine(stderr.String())}
	}
	return stdout.Bytes(), nil
}

// systemConf is Ceph's configuration of everything except monitors and user. QEMU reads it too.
const systemConf = "/etc/ceph/ceph.conf"

// confFile returns the configuration file for Ceph's libraries. If systemConf is absent, it
// returns /dev/null, because some of the libraries refuse an absent file.
func confFile() string {
	if _, err := os.Stat(systemConf); errors.Is(err, fs.ErrNotExist) {
		return os.DevNull
	}
	return systemConf
}
