// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
)

func TestConformanceOnRealLibvirt(t *testing.T) {
	hvtest.Conformance(t, newRealEnv(t))
}
