// SPDX-License-Identifier: Apache-2.0

package sharedmove

import (
	"fmt"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostop"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// refusal returns why a host could not act on an instance, with the host's name, and does not
// repeat a prefix of the daemon's message.
func refusal(g workflow.PauseInstance, verb string, failed *api.Error) *api.Error {
	what := fmt.Sprintf("cannot %s instance %s", verb, g.Name)
	short := *failed
	short.Message = strings.TrimPrefix(failed.Message, what+": ")
	return hostop.About(&short, "%s on host %s", what, g.Host.Name)
}
