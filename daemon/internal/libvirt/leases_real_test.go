// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/test/lab"
)

// leasedEnv is a realEnv whose libvirtd has the lock manager lockd.
type leasedEnv struct {
	*realEnv
	leaseOf func(path string) string
}

func (e leasedEnv) Leased(tb testing.TB, path string) bool {
	tb.Helper()
	leased, err := e.libvirtd.Leased(e.leaseOf(path))
	if err != nil {
		tb.Fatal(err)
	}
	return leased
}

func TestGuestsKeepTheirLeasesOnRealVirtlockd(t *testing.T) {
	noLeaks(t)
	for name, inLockspace := range map[string]bool{"leases on the images": false, "leases in a lockspace": true} {
		t.Run(name, func(t *testing.T) {
			if inLockspace {
				leftToTestConformance(t)
			}
			lab.Require(t)
			dir := lab.TempDir(t)
			env := leasedEnv{leaseOf: func(path string) string { return path }}
			lockspace := ""
			if inLockspace {
				lockspace = filepath.Join(dir, "leases")
				env.leaseOf = func(path string) string { return lab.LeaseIn(lockspace, path) }
			}
			must(t, lab.UseLockManager(dir, lockspace))
			env.realEnv = realEnvIn(t, dir)
			hvtest.LeaseConformance(t, env)
		})
	}
}
