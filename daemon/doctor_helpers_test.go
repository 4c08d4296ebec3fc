// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/doctor"
	"github.com/volferry/volferry/daemon/internal/programs"
)

func TestDoctorNamesTheHelperThatDoesNotAnswer(t *testing.T) {
	if checks := doctor.Helpers(t.Context()); len(checks) != 0 {
		t.Errorf("without helpers doctor says %+v", checks)
	}
	t.Setenv(programs.EnvConnectors, servedConnectors(t, nil))
	if checks := doctor.Helpers(t.Context()); len(checks) != 1 || checks[0].Status != "ok" {
		t.Errorf("with one that answers doctor says %+v", checks)
	}
	t.Setenv(programs.EnvProcesses, filepath.Join(t.TempDir(), "processes.sock"))
	if checks := doctor.Helpers(t.Context()); len(checks) != 1 || checks[0].Status != "fail" || !strings.Contains(checks[0].Message, "volferryd-processes.service") {
		t.Errorf("with one that is away doctor says %+v", checks)
	}
}
