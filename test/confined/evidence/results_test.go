// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recorded returns the results of recorded runs. A test failed in the earlier one of the two runs
// without a security module.
func recorded(t *testing.T, names ...string) *Results {
	t.Helper()
	all := &Results{}
	for _, name := range names {
		f, err := os.Open(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := all.Read(f); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func wantLines(t *testing.T, page string, lines ...string) {
	t.Helper()
	for _, want := range lines {
		if !strings.Contains(page, "\n"+want+"\n") {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}

func TestThePageHasTheResultOfEachScenarioOnEachMachine(t *testing.T) {
	page := recorded(t, "confined.json", "e2e.json").Page()
	wantLines(
		t, page,
		"* The machine *AppArmor, Debian 13* had Linux 6.18.5, libvirt-daemon-system 11.3.0-3, qemu-system-x86 1:10.0.2+ds-2",
		"| scenario | test | none | AppArmor, Debian 13 | SELinux, Debian 13 |\n|---|---|---|---|---|",
		"| what a guest is denied is in the kernel's log | `TestTheKernelLogsWhatAConfinedGuestIsDenied` | skipped (1) | not run | skipped (2) |",
		"| a denied cancel leaves the move to its end | `TestACancelThatAppArmorDeniesLeavesTheMoveToItsEnd` | not run | passed | skipped (2) |",
		"| the volumes of a guest move one after the other | `TestTheVolumesOfAConfinedGuestMoveOneAfterTheOther` | not run | **failed** | skipped (2) |",
		"| mirror | `TestMirrorMovesADiskUnderARunningGuest` | passed | **did not end** | skipped (2) |",
		"1. AppArmor does not confine the guests here; make test-confined makes such a machine",
		"2. the policy of Debian 12 denies its own libvirtd to run a hook and to start a guest; VOLFERRY_CONFINED_RUN runs tests nevertheless",
	)
	if runs := strings.Count(page, "0.1.0-dev+500.g12345678"); runs != 2 {
		t.Errorf("the page has %d runs, want 2:\n%s", runs, page)
	}
}

func TestThePageHasTheImagesOfPassedTestsAloneByMachine(t *testing.T) {
	page := recorded(t, "confined.json", "e2e.json").Page()
	const head = "\n\n| move | phase | image | QEMU has it open to | owner | mode | label | QEMU runs as |\n|---|---|---|---|---|---|---|---|\n"
	const off = "| raw, completed | guest off | source | - | 1234:77 | 0640 | - | - |"
	const context = "libvirt-4a3a1ba0-58c2-4d34-8a6b-3c4a0a8e0d0b (enforce) |"
	wantLines(
		t, page,
		"### none"+head+off+"\n",
		"### AppArmor, Debian 13"+head+off+`
| raw, completed | started | overlay | write | libvirt-qemu:libvirt-qemu | 0600 | - | `+context+`
| raw, completed | started | source | read | libvirt-qemu:libvirt-qemu | 0640 | - | `+context,
	)
	if page := recorded(t, "e2e-failed.json").Page(); strings.Contains(page, "### none") {
		t.Errorf("the page has images of a failed test:\n%s", page)
	}
}

func TestTheLastResultOfATestCountsWhateverTheOrderOfTheFiles(t *testing.T) {
	const failed = "TestEachImageHasItsOwnersAndLabelsInEachPhaseOfAMove (none)"
	for _, files := range [][]string{{"e2e-failed.json", "e2e.json"}, {"e2e.json", "e2e-failed.json"}} {
		if got := recorded(t, files...).Failed(); len(got) > 0 {
			t.Errorf("after %v failed: %q", files, got)
		}
	}
	if got := recorded(t, "e2e-failed.json").Failed(); len(got) != 1 || got[0] != failed {
		t.Errorf("failed: %q, want %s", got, failed)
	}
}

func TestALineOfAnImageIsReadAsItWasPrinted(t *testing.T) {
	want := Image{Move: "raw, completed", Phase: "started", Image: "overlay", Open: "read, write", Owner: "0:0", Mode: "0600", Label: none, QEMU: none}
	text, found := after("    image_owners_test.go:61: "+want.String()+"\r\n", imageHead)
	got, err := parseImage(text)
	if err != nil || !found || got != want {
		t.Errorf("%+v, %v, %v, want %+v", got, found, err, want)
	}
	if _, err := parseImage("raw; started"); err == nil {
		t.Error("half a line is no error")
	}
}

func TestTheScriptOfTheMachinePrintsItsSoftware(t *testing.T) {
	script, err := os.ReadFile("../host.sh")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(script), `echo "`+softwareHead) {
		t.Errorf("host.sh prints no line %q", softwareHead)
	}
}

// A wrong name would leave a scenario out of every run.
func TestEachScenarioHasATest(t *testing.T) {
	files, err := filepath.Glob("../../e2e/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var sources strings.Builder
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sources.Write(text)
	}
	for _, s := range Scenarios {
		if !strings.Contains(sources.String(), "\nfunc "+s.Test+"(t *testing.T)") {
			t.Errorf("test/e2e has no test %s of the scenario %q", s.Test, s.Does)
		}
	}
}
