// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/test/lab"
)

// leasedEnv is a realEnv with the lock manager lockd.
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

func (e leasedEnv) LeaseElsewhere(tb testing.TB, path string) func() {
	tb.Helper()
	end, taken, err := lab.TakeLease(e.leaseOf(path))
	if err != nil || !taken {
		tb.Fatalf("the lease of %s is not free: %v", path, err)
	}
	return func() {
		if err := end(); err != nil {
			tb.Error(err)
		}
	}
}

func (e leasedEnv) OwnerResumes(tb testing.TB, id string) {
	tb.Helper()
	e.virsh(tb, "resume", id)
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

// libvirt gives an image of a suspended guest a lease, and then refuses to resume the guest. It
// does so too if the owner has attached the disk.
func TestAGuestIsResumedThatHasTheLeaseOfItsImage(t *testing.T) {
	leftToTestConformance(t)
	noLeaks(t)
	lab.Require(t)
	dir := lab.TempDir(t)
	must(t, lab.UseLockManager(dir, ""))
	env := realEnvIn(t, dir)
	id, _ := env.define(t)
	image := env.Path(t, "vdx.raw")
	env.CreateImage(t, image, hvtest.Raw, 1<<20)
	must(t, env.conn.PowerOn(t.Context(), id))
	must(t, env.conn.Suspend(t.Context(), id))
	env.virsh(t, "attach-disk", id, image, "sdx", "--targetbus", "scsi", "--live")
	if out, err := env.libvirtd.Virsh(t.Context(), "resume", id); err == nil {
		t.Logf("this libvirt resumes such a guest by itself: %s", out)
		return
	}
	must(t, env.conn.Resume(t.Context(), id))
	state, err := env.conn.RunState(t.Context(), id)
	must(t, err)
	leased, err := env.libvirtd.Leased(image)
	must(t, err)
	if state.State != hv.StateRunning || !leased {
		t.Errorf("the guest is %s, and that it has the lease is %v", state.State, leased)
	}
}
