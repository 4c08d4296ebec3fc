// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// maxStderrBytes of a command that has failed are shown.
const maxStderrBytes = 1 << 10

// command runs a command of nvme-cli.
func command(ctx context.Context, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		said := strings.Join(strings.Fields(stderr.String()), " ")
		return nil, fmt.Errorf("%s: %w: %s", args[0], err, said[:min(len(said), maxStderrBytes)])
	}
	return stdout.Bytes(), nil
}
