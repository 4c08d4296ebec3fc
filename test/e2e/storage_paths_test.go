// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os/exec"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// losePaths takes all paths of MULTIPATH away, which has addresses of its own, and returns when the kernel has given up what it
// was asked for: from then on it answers with errors, until what is returned is called.
func losePaths(t *testing.T) (comeBack func()) {
	t.Helper()
	device := storageDevice(t, "MULTIPATH")
	answers := func() bool {
		return exec.CommandContext(t.Context(), "dd", "if="+device, "of=/dev/null", "iflag=direct", "bs=4096", "count=1").Run() == nil
	}
	restore := loseAddresses(t, "127.0.0.3", "127.0.0.4")
	eventually(t, "a device without paths answers with errors", func() bool { return !answers() })
	return func() {
		t.Helper()
		restore()
		eventually(t, "a path is back", answers)
	}
}

// withPathsAgain brings the paths back and ends the move.
func (v *move) withPathsAgain(t *testing.T, comeBack func(), end func(*move, *testing.T)) {
	t.Helper()
	comeBack()
	end(v, t)
	v.g.startsAgain(t)
	v.g.assertSettledAndGoOn(t)
}

func TestStorageAGuestGoesOnThoughAllPathsOfItsDestinationAreLostInTheCopy(t *testing.T) {
	g := storageGuest(t)
	h, device := g.host, storageDevice(t, "MULTIPATH")
	lost := func() (v *move, comeBack func()) {
		v = g.start(t, "vda", "--to-path", device, "--bandwidth", "1MiB/s")
		v.copyPartly(t)
		comeBack = losePaths(t)
		v.saysThatItCannotCopy(t, device)
		g.writes(t)
		v.assertFrozen(t)
		return v, comeBack
	}
	v, comeBack := lost()
	v.cancel(t) // with no path still
	g.assertSettledAndGoOn(t)
	comeBack()
	t.Log("cancelled")

	v, comeBack = lost()
	h.ctl(t, "migration", "set", v.ID, "--bandwidth", "0")
	v.withPathsAgain(t, comeBack, func(v *move, t *testing.T) {
		v.copy(t)
		v.complete(t)
	})
	g.assertSettled(t)
}

// saysThatItCannotCopy waits until a copy has met the errors of an image, and claims that it names that and what to do.
func (v *move) saysThatItCannotCopy(t *testing.T, image string) {
	t.Helper()
	why := v.untilFailed(t, api.MigrationStarted)
	if why.Code != api.CodeIOError {
		t.Errorf("the copy has failed with %s, want %s", why.Code, api.CodeIOError)
	}
	mustContain(t, why.Message, image, "mend the storage")
}

// The job of a complete has begun then, and each write of the guest goes to the destination as well: the guest waits for as long
// as the kernel does. QEMU 7.2 may die when such a job ends under a write.
func TestStorageAGuestGoesOnThoughAllPathsOfItsDestinationAreLostInTheFold(t *testing.T) {
	g := storageGuest(t)
	device := storageDevice(t, "MULTIPATH")
	lost := func() (v *move, comeBack func()) {
		v = g.start(t, "vda", "--to-path", device)
		g.writes(t)
		v.copy(t)
		slow := lab.Inject(t, g.pid(t), "-P", deviceNode(t, device), "-e", "trace="+fileWrites, "-e", "inject="+fileWrites+":delay_exit=1000000")
		g.host.ctl(t, append([]string{"--no-wait"}, v.completeArgs()...)...)
		v.untilFolding(t)
		comeBack = losePaths(t)
		slow()
		t.Log(v.untilFailed(t, api.MigrationCopied))
		g.outlivesItsJob(t)
		return v, comeBack
	}
	v, comeBack := lost()
	v.cancel(t) // with no path still
	g.startsAgain(t)
	g.assertSettledAndGoOn(t)
	comeBack()
	t.Log("cancelled")

	v, comeBack = lost()
	v.withPathsAgain(t, comeBack, (*move).finish)
	g.assertSettled(t)
}

// The guest is on its overlay over a source that nobody can read or write.
func TestStorageASourceOfWhichAllPathsAreLostIsSaidAndLosesNothing(t *testing.T) {
	g := storageGuest(t)
	h, device := g.host, storageDevice(t, "MULTIPATH")
	g.migrate(t, "vda", "--to-path", device)

	v := g.start(t, "vda", "--to-pool", "b")
	g.writes(t)
	comeBack := losePaths(t)
	h.ctl(t, append([]string{"--no-wait"}, v.cancelArgs()...)...)
	t.Log(v.untilFailed(t, api.MigrationCancelling))
	g.outlivesItsJob(t)
	v.withPathsAgain(t, comeBack, (*move).cancel)
	t.Log("cancelled")

	v = g.start(t, "vda", "--to-pool", "b", "--bandwidth", "1MiB/s")
	v.copyPartly(t)
	comeBack = losePaths(t)
	v.saysThatItCannotCopy(t, device)
	g.writes(t)
	comeBack()
	v.assertFrozen(t)
	h.ctl(t, "migration", "set", v.ID, "--bandwidth", "0")
	v.copy(t)
	t.Log("copied")

	comeBack = losePaths(t)
	h.ctl(t, append([]string{"--no-wait"}, v.completeArgs()...)...)
	t.Log(v.untilFailed(t, api.MigrationCopied))
	g.outlivesItsJob(t)
	v.withPathsAgain(t, comeBack, (*move).finish)
	g.assertSettled(t)
}
