// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/beevik/etree"
	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/process"
)

// QEMUVersion implements hv.Hypervisor. libvirt does not report the version of a process, and a
// monitor command would taint the domain. But libvirt reports the version of the installed
// emulator, and /proc shows whether the process was started from that file, which an upgrade
// replaces.
func (ps *guestProcesses) QEMUVersion(ctx context.Context, id string) (hv.Version, error) {
	v, err := ps.qemuVersion(ctx, strings.ToLower(id))
	if err != nil {
		return hv.Version{}, fmt.Errorf("find the version of QEMU of domain %s: %w", id, err)
	}
	return v, nil
}

func (ps *guestProcesses) qemuVersion(ctx context.Context, id string) (none hv.Version, err error) {
	_, about, err := ps.onlyProcess(ctx, id)
	if errors.Is(err, hv.ErrNoProcess) {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	// The version first: an upgrade in between then makes it unknown instead of wrong.
	version, path, err := ps.emulator(ctx)
	if err != nil || path == "" {
		return none, err
	}
	installed, err := process.Identify(path)
	if err != nil || about.Program != installed {
		return none, nil //nolint:nilerr // the emulator was upgraded or removed: unknown
	}
	return version, nil
}

func (ps *guestProcesses) emulator(ctx context.Context) (version hv.Version, path string, err error) {
	s, err := ps.connection.reads()
	if err != nil {
		return version, "", err
	}
	n, err := call(ctx, s, func(lv *golibvirt.Libvirt) (uint64, error) { return lv.ConnectGetVersion() })
	if err != nil {
		return version, "", unlessAway(err)
	}
	doc, err := call(ctx, s, func(lv *golibvirt.Libvirt) (string, error) {
		return lv.ConnectGetDomainCapabilities(nil, nil, nil, nil, 0)
	})
	if err != nil {
		return version, "", unlessAway(err)
	}
	caps := etree.NewDocument()
	if err := caps.ReadFromString(doc); err != nil {
		return version, "", fmt.Errorf("parse the capabilities of domains: %w", err)
	}
	if e := caps.FindElement("/domainCapabilities/path"); e != nil {
		path = strings.TrimSpace(e.Text())
	}
	return hv.VersionOf(n), path, nil
}

func unlessAway(err error) error {
	if errors.Is(err, hv.ErrUnavailable) {
		return err
	}
	return nil
}
