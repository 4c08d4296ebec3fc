// SPDX-License-Identifier: Apache-2.0

package treetest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// make test-unit prepares no virtual machine.
func TestNoUnitTestStartsAVirtualMachine(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^NOT_UNIT +:= (.*)$`).FindStringSubmatch(string(makefile))
	if found == nil {
		t.Fatal("the Makefile has no NOT_UNIT")
	}
	ofMake := strings.NewReplacer("$(MODULE)", module, "$$", "$")
	notUnit := regexp.MustCompile("^" + ofMake.Replace(found[1]))
	for _, p := range packages(t) {
		imports := slices.Concat(p.TestImports, p.XTestImports)
		if slices.Contains(imports, module+"/test/vm") && !notUnit.MatchString(p.ImportPath) {
			t.Errorf("the tests of %s start a virtual machine, and NOT_UNIT of the Makefile does not leave them out", p.rel())
		}
	}
}
