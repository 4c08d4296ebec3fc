// SPDX-License-Identifier: Apache-2.0

package command_test

import (
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/connectors/internal/command"
	"github.com/volferry/volferry/daemon/internal/connector"
)

func TestAProgramThatIsNotThereIsNamedWithItsPackage(t *testing.T) {
	if err := command.Installed("sh", "dash"); err != nil {
		t.Errorf("sh: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	err := command.Installed("sh", "dash")
	if connector.CodeOf(err) != connector.CodeUnavailable || !strings.Contains(err.Error(), "sh is not installed: apt-get install dash") {
		t.Errorf("without it: %v", err)
	}
}
