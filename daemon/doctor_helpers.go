// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/volferry/volferry/daemon/internal/sandbox"
	"github.com/volferry/volferry/internal/api"
)

// helperTimeout is how long a helper may take to say that it answers. systemd starts one that has
// ended.
const helperTimeout = 5 * time.Second

// helpers asks each program that does for the daemon what its unit does not let it do whether it
// answers. Those of QEMU run one by one, for one image each.
func helpers(ctx context.Context) []api.Check {
	const name = "helpers"
	var out []api.Check
	asked := 0
	for _, variable := range []string{envPrivileged, envDialer, envConnectors, envStorage, envAccess, envHook, envProcesses} {
		socket := os.Getenv(variable)
		if socket == "" {
			continue
		}
		asked++
		if err := helperAnswers(ctx, socket); err != nil {
			out = append(out, api.Check{Name: name, Status: "fail", Message: err.Error()}) // which says what to look at
		}
	}
	switch {
	case len(out) > 0:
		return out
	case asked == 0: // the daemon does all of it itself
		return nil
	}
	return []api.Check{ok(name, fmt.Sprintf("%s of the daemon answer", api.Count(asked, "helper program")))}
}

func helperAnswers(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, helperTimeout)
	defer cancel()
	return sandbox.Answers(ctx, socket)
}
