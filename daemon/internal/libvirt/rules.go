// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// rulesDir is where libvirt writes the AppArmor profiles of running guests, each with the rules of
// its own in a file beside it. It is a variable for the tests.
var rulesDir = "/etc/apparmor.d/libvirt"

// WriteDeniedBy implements hv.Hypervisor. It asks the kernel which profile confines the process,
// and reads the rules that libvirt has made of it. When libvirt (before 12.1.0) makes all of
// them, at a start or when something is taken from the guest, it writes a rule with "deny" for
// each image that is below another. For a job it adds rules, and those with "deny" win.
func (c *Conn) WriteDeniedBy(ctx context.Context, id, path string) (*hv.Rule, error) {
	rule, err := c.writeDeniedBy(ctx, strings.ToLower(id), path)
	if err != nil {
		return nil, fmt.Errorf("read which rules confine domain %s: %w", id, err)
	}
	return rule, nil
}

func (c *Conn) writeDeniedBy(ctx context.Context, id, path string) (*hv.Rule, error) {
	_, about, err := c.onlyProcess(ctx, id)
	if err != nil || about.Profile == "" {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) { // it is made later
		real, err = filepath.EvalSymlinks(filepath.Dir(path))
		real = filepath.Join(real, filepath.Base(path))
	}
	if err != nil {
		return nil, err
	}
	file := filepath.Join(rulesDir, filepath.Base(about.Profile)+".files")
	rules, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // the profile is not of libvirt's making
	}
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(rules)) {
		if strings.TrimSpace(line) == `deny "`+real+`" w,` {
			return &hv.Rule{File: file, Path: real}, nil
		}
	}
	return nil, nil
}
