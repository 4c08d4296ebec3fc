// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// nvmeAddresses are those by which the host has NVME.
var nvmeAddresses = []string{"127.0.0.5", "127.0.0.6"}

// pathsOfNVMe are the directories of the controllers of NVME in sysfs, one for each path.
func pathsOfNVMe(t *testing.T) (dirs []string) {
	t.Helper()
	files, err := filepath.Glob("/sys/class/nvme/nvme*/address")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text := readSys(t, file)
		if slices.ContainsFunc(nvmeAddresses, func(a string) bool { return strings.Contains(text, "traddr="+a+",") }) {
			dirs = append(dirs, filepath.Dir(file))
		}
	}
	if len(dirs) != len(nvmeAddresses) {
		t.Fatalf("NVME has the paths %v, want one by each of %v", dirs, nvmeAddresses)
	}
	return dirs
}

func readSys(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// failsSoon has the kernel answer with errors for NVME when both paths have been lost for five
// seconds, until the test has ended.
func failsSoon(t *testing.T) {
	t.Helper()
	for _, dir := range pathsOfNVMe(t) {
		file := filepath.Join(dir, "fast_io_fail_tmo")
		set := func(seconds string) {
			if err := os.WriteFile(file, []byte(seconds), 0); err != nil {
				t.Error(err)
			}
		}
		set("5")
		t.Cleanup(func() { set("-1") })
	}
}

// loseNamespace takes all paths of NVME away, and returns when the kernel knows that: from then on
// it keeps what it is asked for, until what is returned is called.
func loseNamespace(t *testing.T) (comeBack func()) {
	t.Helper()
	paths := pathsOfNVMe(t)
	isLive := func(dir string) bool { return readSys(t, filepath.Join(dir, "state")) == "live" }
	restore := loseAddresses(t, nvmeAddresses...)
	eventually(t, "no path of the namespace is live", func() bool { return !slices.ContainsFunc(paths, isLive) })
	return func() {
		t.Helper()
		restore()
		eventually(t, "a path of the namespace is live", func() bool { return slices.ContainsFunc(paths, isLive) })
	}
}

func TestStorageAGuestGoesOnThoughTheNamespaceThatItMovesToFails(t *testing.T) {
	g := storageGuest(t)
	failsSoon(t)
	device := storageDevice(t, "NVME")
	g.goesOnThoughTheCopyFails(t, device, func(t *testing.T) (comeBack func()) {
		t.Helper()
		return loseDevice(t, device, nvmeAddresses...)
	})
}

// Nobody gets an error of a namespace whose connections are lost, unless the operator wants that:
// the kernel waits for ten minutes.
func TestStorageAGuestWaitsForANamespaceThatIsLostAndLosesNothing(t *testing.T) {
	g := storageGuest(t)
	h := g.host
	v := g.start(t, "vda", "--to-path", storageDevice(t, "NVME"), "--bandwidth", "1MiB/s")
	v.copyPartly(t)
	comeBack := loseNamespace(t)
	eventually(t, "the copy says that it makes no progress", func() bool {
		m := get[api.Migration](t, h, "migration", "migration", "show", v.ID)
		return m.State == api.MigrationCopying && strings.HasPrefix(m.Pacing, "no progress for ") && m.RateBytesPerSecond == 0
	})
	g.writes(t) // to its overlay
	h.answersInTime(t)
	comeBack()
	h.ctl(t, "migration", "set", v.ID, "--bandwidth", "0")
	v.copy(t)
	v.complete(t)
	g.assertSettledAndGoOn(t)
	t.Log("moved there, by a copy that has waited")

	comeBack = loseNamespace(t)
	h.answersInTime(t)
	before := len(g.History("vda").Acks)
	h.answersInTime(t)
	if n := len(g.History("vda").Acks) - before; n > 0 {
		t.Errorf("%d writes were acknowledged while the disk of the guest was away", n)
	}
	if state := g.state(t); state != "running" {
		t.Errorf("the guest is %s, and its disk is away", state)
	}
	comeBack()
	g.writes(t)
	g.assertSettledAndGoOn(t)
	t.Log("the guest has waited")
	g.migrate(t, "vda", "--to-pool", "b")
	g.assertSettled(t)
}
