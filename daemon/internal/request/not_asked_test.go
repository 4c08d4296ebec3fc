// SPDX-License-Identifier: Apache-2.0

package request

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

func TestARefusalSaysWhichProgramIsAway(t *testing.T) {
	away := fmt.Errorf("list: %w", &hv.NotAskedError{Err: errors.New("no answer; `systemctl status volferryd-processes.service` says why")})
	err := Refused(away)
	if !errors.Is(away, hv.ErrUnavailable) || api.CodeOf(err) != api.CodeHypervisorUnavailable || !strings.Contains(err.Error(), "volferryd-processes") || strings.Contains(err.Error(), "libvirt") {
		t.Errorf("refused by %v", err)
	}
}
