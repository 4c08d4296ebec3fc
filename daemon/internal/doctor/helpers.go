// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/volferry/volferry/daemon/internal/programs"
	"github.com/volferry/volferry/daemon/internal/sandbox"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
)

const helperTimeout = 5 * time.Second

// Helpers checks that each helper program answers. It omits the helpers that run QEMU programs:
// such a helper is started for each image.
func Helpers(ctx context.Context) []api.Check {
	const name = "helpers"
	var out []api.Check
	asked := 0
	for _, variable := range []string{programs.EnvPrivileged, programs.EnvDialer, programs.EnvConnectors, programs.EnvStorage, programs.EnvAccess, programs.EnvHook, programs.EnvProcesses} {
		socket := os.Getenv(variable)
		if socket == "" {
			continue
		}
		asked++
		if err := helperAnswers(ctx, socket); err != nil {
			out = append(out, api.Check{Name: name, Status: "fail", Message: err.Error()})
		}
	}
	switch {
	case len(out) > 0:
		return out
	case asked == 0: // the daemon needs no helper
		return nil
	}
	return []api.Check{ok(name, fmt.Sprintf("%s of the daemon answer", humanize.Count(asked, "helper program")))}
}

func helperAnswers(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, helperTimeout)
	defer cancel()
	return sandbox.Answers(ctx, socket)
}
