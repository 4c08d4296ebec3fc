// SPDX-License-Identifier: Apache-2.0

// Package command runs the commands of the storage for which a connector is. It must not know
// any of them.
package command

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// maxStderrBytes of a command that has failed are shown.
const maxStderrBytes = 1 << 10

// Run runs a program with its arguments, without a shell, and returns its stdout. The error of
// one that fails has the beginning of its stderr.
func Run(ctx context.Context, args ...string) ([]byte, error) { return RunHolding(ctx, nil, args...) }

// RunHolding is Run of a program that inherits a file, nil for none: whatever lock that has is held
// until the program has ended, though whoever started it has before.
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
