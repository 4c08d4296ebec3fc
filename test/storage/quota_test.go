// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/test/vm"
	"github.com/volferry/volferry/test/vm/boot"
	"github.com/volferry/volferry/test/vm/suite"
)

// The kernel of the machine has quotas of users, groups and projects on ext4 and XFS.
func TestQuotasAreReadOfTheKernel(t *testing.T) {
	machine, programs := vm.NewUserMode(t, vm.Unconfined), t.TempDir()
	suite.Build(t, "test", "-c", "-o", filepath.Join(programs, "quota.test"), "../../daemon/internal/quota")
	err := machine.Run(t.Context(), t.TempDir(), vm.Config{
		Shares:  []vm.Share{{Host: programs, Share: boot.Share{Tag: "programs", Path: "/programs"}}},
		Env:     []string{"VOLFERRY_QUOTAS=require"},
		Dir:     "/programs",
		Command: []string{"/bin/sh", "-c", "modprobe -a loop && exec /programs/quota.test -test.v -test.timeout 10m"},
	}, os.Stdout)
	if err != nil {
		t.Fatal(err)
	}
}
