// SPDX-License-Identifier: Apache-2.0

package migratetest

import (
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/expect"
)

// LUKSSecret is the UUID of the secret for the container of a LUKSWorld.
const LUKSSecret = "2f2cbd1e-6c2f-4f0e-9a5b-0d6a0a6f4e11"

// LUKSWorld returns a world with a LUKS container as the volume. The guest sees the usual data in
// it.
func LUKSWorld(t *testing.T, state hv.State) *World {
	t.Helper()
	w := NewWorld(t, hv.StateStopped)
	expect.OK(t, w.Encrypt(SrcPath, LUKSSecret))
	w.Src.LUKSSecret = LUKSSecret
	w.Redefine(t, func(d *hv.Domain) { d.Config[0].Chain[0].LUKSSecret = LUKSSecret })
	v := &w.Registry.Vol
	v.Location.LUKSSecret, v.Location.SizeBytes = LUKSSecret, Size+hvtest.HeaderBytes
	v.Attachments[0].Location = v.Location
	w.bring(t, state)
	return w
}
