// SPDX-License-Identifier: Apache-2.0

// Package command runs the commands of a connector's storage.
package command

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

const maxStderrBytes = 1 << 10

// Run runs a program without a shell, and returns its stdout. The error of a failed program has the
// beginning of its stderr.
func Run(ctx context.Context, args ...string) ([]byte, error) { return RunHolding(ctx, nil, args...) }

// RunHolding is Run for a program that inherits the file held, nil for none: the program keeps a
// lock of the file until it ends, even if this process ends before.
func RunHolding(ctx context.Context, held *os.File, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	if held != nil {
		cmd.ExtraFiles = []*os.File{held}
	}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		said := strings.Join(strings.Fields(stderr.String()), " ")
		return nil, fmt.Errorf("%s: %w: %s", args[0], err, said[:min(len(said), maxStderrBytes)])
	}
	return stdout.Bytes(), nil
}
