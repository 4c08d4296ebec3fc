// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/volferry/volferry/test/site"
	"github.com/volferry/volferry/test/vm"
	"github.com/volferry/volferry/test/vm/boot"
)

// runConfined runs this program with the same flags on a machine of user-mode Linux, where AppArmor
// confines the guests and volferryd runs under the unit and the profile of its package. The results
// are in the directory results of this host.
func runConfined(ctx context.Context, flags []string, results string, out io.Writer) (err error) {
	machine, err := vm.FindUserMode(vm.AppArmor)
	if err != nil {
		return err
	}
	top, err := site.Root()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "vfbench-")
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	programs, disks := filepath.Join(dir, "programs"), filepath.Join(dir, "disks")
	if err := errors.Join(os.Mkdir(disks, 0o700), os.MkdirAll(results, 0o755)); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	// The machine has no Go.
	for name, source := range map[string]string{"bench": "./test/bench/data", "guest": "./test/lab/guest"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(programs, name), source)
		cmd.Dir, cmd.Env = top, append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w: %s", source, err, text)
		}
	}
	cfg := vm.Repository(top, programs)
	cfg.Shares = append(cfg.Shares, vm.Share{Host: results, Share: boot.Share{Tag: "results", Path: "/results", Writable: true}})
	cfg.Env = append(cfg.Env, "VOLFERRY_LAB_CONFINED="+string(vm.AppArmor), "VOLFERRY_UNIT=/lib/systemd/system/volferryd.service", "TMPDIR=/srv")
	cfg.Command = append([]string{"/source/test/confined/host.sh", "/programs/bench"}, append(flags, "-bin", "/source/bin", "-out", "/results")...)
	return machine.Run(ctx, disks, cfg, out)
}
