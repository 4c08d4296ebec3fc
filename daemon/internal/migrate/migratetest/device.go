// SPDX-License-Identifier: Apache-2.0

package migratetest

import (
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
)

// The devices of a DeviceWorld, outside the real /dev.
const (
	SrcDevice = "/var/old-device"
	DstDevice = "/var/new-device"
)

// DeviceWorld returns a world with a volume that moves from a qcow2 image on a block device to
// another device.
func DeviceWorld(t *testing.T, state hv.State) *World {
	t.Helper()
	w := NewWorld(t, hv.StateStopped)
	w.Src = hv.Image{Type: hv.SourceBlock, Format: hvtest.Qcow2, Path: SrcDevice}
	w.To = api.MigrationTarget{ToPath: DstDevice}
	w.Images.Devices = map[string]bool{SrcDevice: true, DstDevice: true}
	for _, path := range []string{SrcDevice, DstDevice} {
		expect.OK(t, w.CreateImage(path, hvtest.Raw, DeviceBytes))
	}
	expect.OK(t, w.CreateOnDevice(SrcDevice, Size))
	expect.OK(t, w.Copy(SrcPath, SrcDevice))
	w.Redefine(t, func(d *hv.Domain) { d.Config[0].Chain = []hv.Image{w.Src} })
	v := &w.Registry.Vol
	v.Location.Path, v.Location.Format = SrcDevice, api.FormatQcow2
	v.Attachments[0].Location = v.Location
	w.bring(t, state)
	return w
}
