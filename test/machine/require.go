// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/volferry/volferry/test/lab"
)

// tools are the programs that machines need on the host of the test, with the Debian
// package of each.
var tools = []struct{ name, pkg string }{
	{"systemd-nspawn", "systemd-container"},
	{"ip", "iproute2"},
	{"nsenter", "util-linux"},
	{"setpriv", "util-linux"},
	{"journalctl", "systemd"},
}

// cacheDir holds the root of all machines. install.sh has the same default, by release.
func cacheDir() string {
	if dir := os.Getenv("VOLFERRY_MACHINE_CACHE"); dir != "" {
		return dir
	}
	name := "machine"
	if suite := os.Getenv("VOLFERRY_MACHINE_SUITE"); suite != "" && suite != "bookworm" {
		name += "-" + suite
	}
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", ".cache", name)
}

// Missing returns what machines need and this host lacks, in words for a person. It is
// empty where they can run.
func Missing() []string {
	var missing []string
	if os.Geteuid() != 0 {
		missing = append(missing, "root privileges")
	}
	for _, tool := range tools {
		if _, err := exec.LookPath(tool.name); err != nil {
			missing = append(missing, tool.name+" (package "+tool.pkg+")")
		}
	}
	if _, err := os.Stat(filepath.Join(cacheDir(), "stamp")); err != nil {
		missing = append(missing, "the root of the machines")
	}
	if _, err := cgroupParents(); err != nil {
		missing = append(missing, "cgroups of systemd ("+err.Error()+")")
	}
	return missing
}

// Require skips the test, or fails it as lab.SkipOrFail does, where machines cannot run.
func Require(tb testing.TB) {
	tb.Helper()
	if missing := Missing(); len(missing) > 0 {
		lab.SkipOrFail(tb, "machines need "+strings.Join(missing, ", ")+"; run test/machine/install.sh as root")
	}
}

// DocsDir is the directory of what docs.sh makes, for machines on which pages of the
// documentation are followed. Without it the test ends as by Require.
func DocsDir(tb testing.TB) string {
	tb.Helper()
	dir := cacheDir()
	if _, err := os.Stat(filepath.Join(dir, "docs.stamp")); err != nil {
		lab.SkipOrFail(tb, "the pages need an image of Debian and tools; run test/machine/docs.sh as root")
	}
	return dir
}
