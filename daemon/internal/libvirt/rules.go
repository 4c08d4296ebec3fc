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

// rulesDir is the directory of the AppArmor profiles that libvirt writes for running guests, each
// with a second file of rules. It is a variable for the tests.
var rulesDir = "/etc/apparmor.d/libvirt"

// rulesFile is libvirt's file of rules for a profile, which exists if the profile is libvirt's.
func rulesFile(profile string) string {
	return filepath.Join(rulesDir, filepath.Base(profile)+".files")
}

// WriteDeniedBy implements hv.Hypervisor. It reads from the kernel which profile confines the
// process, and then libvirt's rules of that profile. libvirt (before 12.1.0) writes all rules at a
// start, or when something is removed from the guest, with a "deny" rule for writes to each image
// below another. For a block job it adds rules that allow writes, but "deny" rules win.
func (ps *guestProcesses) WriteDeniedBy(ctx context.Context, id, path string) (*hv.Rule, error) {
	rule, err := ps.writeDeniedBy(ctx, strings.ToLower(id), path)
	if err != nil {
		return nil, fmt.Errorf("read which rules confine domain %s: %w", id, err)
	}
	return rule, nil
}

func (ps *guestProcesses) writeDeniedBy(ctx context.Context, id, path string) (*hv.Rule, error) {
	_, about, err := ps.onlyProcess(ctx, id)
	if err != nil || about.Profile == "" {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) { // the image is made later
		real, err = filepath.EvalSymlinks(filepath.Dir(path))
		real = filepath.Join(real, filepath.Base(path))
	}
	if err != nil {
		return nil, err
	}
	file := rulesFile(about.Profile)
	rules, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // the profile is not libvirt's
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

// Confinement implements hv.Hypervisor.
func (ps *guestProcesses) Confinement(ctx context.Context, id string) (hv.Confinement, error) {
	_, about, err := ps.onlyProcess(ctx, strings.ToLower(id))
	if err != nil {
		return hv.Confinement{}, fmt.Errorf("read what confines domain %s: %w", id, err)
	}
	return hv.Confinement{Profile: about.Profile, Context: about.Context}, nil
}

// DeniesBelow implements hv.Hypervisor.
func (ps *guestProcesses) DeniesBelow(ctx context.Context, id string) (bool, error) {
	denies, err := ps.deniesBelow(ctx, strings.ToLower(id))
	if err != nil {
		return false, fmt.Errorf("read which rules libvirt makes for domain %s: %w", id, err)
	}
	return denies, nil
}

func (ps *guestProcesses) deniesBelow(ctx context.Context, id string) (bool, error) {
	_, about, err := ps.onlyProcess(ctx, id)
	if err != nil || about.Profile == "" {
		return false, err
	}
	if _, err := os.Stat(rulesFile(about.Profile)); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return false, nil // the profile is not libvirt's
		}
		return false, err
	}
	version, err := ps.connection.libraryVersion(ctx)
	return hv.DeniesBelow(version), err
}
