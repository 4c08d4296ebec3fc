// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// losePaths takes all paths of MULTIPATH away, which has addresses of its own, and returns when the
// kernel has given up what it was asked for: from then on it answers with errors, until what is
// returned is called.
func losePaths(t *testing.T) (comeBack func()) {
	t.Helper()
	return loseDevice(t, storageDevice(t, "MULTIPATH"), "127.0.0.3", "127.0.0.4")
}

// loseDevice loses the addresses by which a device is reached, and returns when it answers with
// errors.
func loseDevice(t *testing.T, device string, addresses ...string) (comeBack func()) {
	t.Helper()
	answers := func() bool {
		return exec.CommandContext(t.Context(), "dd", "if="+device, "of=/dev/null", "iflag=direct", "bs=4096", "count=1").Run() == nil
	}
	restore := loseAddresses(t, addresses...)
	eventually(t, "a device without paths answers with errors", func() bool { return !answers() })
	return func() {
		t.Helper()
		restore()
		eventually(t, "a path is back", answers)
	}
}

// writeSlowly has each write to a map of the device mapper take longer than it takes to lose all
// paths, and less than the initiator gives a write, until what is returned is called. What waits in
// it then is written at once: nothing comes late to a disk that has its paths back. QEMU does not
// feel it but by its writes, whereas a tracer stops it at each of its calls.
func writeSlowly(t *testing.T, variable string) (soon func()) {
	t.Helper()
	const writeTime = 20 * time.Second
	name := storageDevice(t, variable)
	dmsetup := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("dmsetup", args...).CombinedOutput() //nolint:noctx // also when the test has ended
		if err != nil {
			t.Errorf("dmsetup %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	becomes := func(table string) {
		t.Helper()
		dmsetup("reload", name, "--table", table)
		dmsetup("resume", name)
	}
	fast := dmsetup("table", name)
	parts := strings.Fields(fast) // its beginning, its sectors, "linear", the disk, and where there it begins
	if len(parts) != 5 {
		t.Fatalf("%s is %q", name, fast)
	}
	at := strings.Join(parts[3:], " ")
	becomes(fmt.Sprintf("%s %s delay %s 0 %s %d", parts[0], parts[1], at, at, writeTime.Milliseconds()))
	soon = sync.OnceFunc(func() { becomes(fast) })
	t.Cleanup(soon)
	return soon
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
	storageGuest(t).goesOnThoughTheCopyFails(t, storageDevice(t, "MULTIPATH"), losePaths)
}

// goesOnThoughTheCopyFails moves the disk of a guest to a device that answers with errors for a
// while: in vain, and then to the end.
func (g *guest) goesOnThoughTheCopyFails(t *testing.T, device string, lose func(*testing.T) (comeBack func())) {
	t.Helper()
	h := g.host
	lost := func() (v *move, comeBack func()) {
		v = g.start(t, "vda", "--to-path", device, "--bandwidth", "1MiB/s")
		v.copyPartly(t)
		comeBack = lose(t)
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

// saysThatItCannotCopy waits until a copy has met the errors of an image, and claims that it names
// that and what to do.
func (v *move) saysThatItCannotCopy(t *testing.T, image string) {
	t.Helper()
	why := v.untilFailed(t, api.MigrationStarted)
	if why.Code != api.CodeIOError {
		t.Errorf("the copy has failed with %s, want %s", why.Code, api.CodeIOError)
	}
	mustContain(t, why.Message, image, "mend the storage")
}

// The job of a complete has begun then, and each write of the guest goes to the destination as
// well: the guest waits for as long as the kernel does. QEMU 7.2 may die when such a job ends under
// a write.
func TestStorageAGuestGoesOnThoughAllPathsOfItsDestinationAreLostInTheFold(t *testing.T) {
	g := storageGuest(t)
	device := storageDevice(t, "MULTIPATH")
	lost := func() (v *move, comeBack func()) {
		v = g.start(t, "vda", "--to-path", device)
		g.writes(t)
		v.copy(t)
		soon := writeSlowly(t, "MULTIPATH_DISK")
		g.host.ctl(t, append([]string{"--no-wait"}, v.completeArgs()...)...)
		v.untilFolding(t)
		comeBack = losePaths(t)
		soon()
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
