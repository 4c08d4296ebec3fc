// SPDX-License-Identifier: Apache-2.0

package treetest

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// linkedDir is the package and the name of the variable that the linker sets in the daemon that
// is installed, the value, and the file.
var linkedDir = regexp.MustCompile(`-X ` + regexp.QuoteMeta(module) + `/(daemon/[a-z/]+)\.([A-Z][A-Za-z]+)=(\S+)' -o (\S+) ./daemon\n`)

// The linker says nothing of a variable that there is not, or that is a constant.
func TestWhatMakeInstallsLooksForConnectorsWhereItPutsThem(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "make", "--dry-run", "install", "PREFIX=/opt/v", "DESTDIR=/stage")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	linked := linkedDir.FindStringSubmatch(string(out))
	if linked == nil {
		t.Fatalf("the daemon is not linked with a directory of connectors:\n%s", out)
	}
	pkg, name, dir, program := linked[1], linked[2], linked[3], linked[4]
	if dir != "/opt/v/libexec/volferry/connectors" {
		t.Errorf("it looks in %s, which is not below PREFIX", dir)
	}
	if put := "install -m 0755 bin/connectors/* '/stage" + dir + "/'"; !strings.Contains(string(out), put+"\n") {
		t.Errorf("the connectors are not put into %s, where it looks:\n%s", dir, out)
	}
	if !strings.Contains(string(out), "install -m 0755 "+program+" ") {
		t.Errorf("%s is not what is installed:\n%s", program, out)
	}
	declared := regexp.MustCompile(`(?m)^var ` + name + ` = "`)
	found := false
	eachFile(t, func(path, text string) {
		found = found || filepath.Dir(path) == pkg && declared.MatchString(text)
	})
	if !found {
		t.Errorf("package %s has no variable %s with a text that the linker could replace", pkg, name)
	}
}
