// SPDX-License-Identifier: Apache-2.0

package request

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

var errProcessesAway = fmt.Errorf("list: %w", &hv.NotAskedError{Err: errors.New("no answer; `systemctl status volferryd-processes.service` says why")})

// namesProcesses fails unless a message names volferryd-processes, and not libvirt.
func namesProcesses(t *testing.T, err error) {
	t.Helper()
	if api.CodeOf(err) != api.CodeHypervisorUnavailable || !strings.Contains(err.Error(), "volferryd-processes.service`") || strings.Contains(err.Error(), "libvirt") {
		t.Errorf("refused by %v", err)
	}
}

func TestARefusalSaysWhichProgramIsAway(t *testing.T) {
	if !errors.Is(errProcessesAway, hv.ErrUnavailable) {
		t.Error("nobody waits for the program")
	}
	namesProcesses(t, Refused(errProcessesAway))
	namesProcesses(t, NoHypervisor(errProcessesAway))
}

func TestAnOpThatWaitsSaysWhichProgramIsAway(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*DefaultTimeout)
		defer cancel()
		go func() {
			for ctx.Err() == nil {
				select {
				case b.let <- HV(errProcessesAway):
				case <-ctx.Done():
				}
			}
		}()
		if _, err := b.ask(t, "a", kindOurs, "x"); err != nil {
			t.Fatal(err)
		}
		st, err := b.admission.End(ctx, "a", "it is being done")
		if st.State != op.StateRunning || st.Waiting != WaitProcesses {
			t.Errorf("the op is %s and waits for %q", st.State, st.Waiting)
		}
		namesProcesses(t, err)
	})
}
