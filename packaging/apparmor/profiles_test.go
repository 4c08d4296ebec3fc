// SPDX-License-Identifier: Apache-2.0

// Package apparmor tests the profiles and the module of SELinux of the packages.
package apparmor

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// withoutProfile are the units that AppArmor does not confine. The profile file says why.
var withoutProfile = []string{"volferryd-processes.service"}

func TestEachUnitNamesAProfileAndALabelOfThePackages(t *testing.T) {
	profiles := declared(t, `(?m)^profile (\S+) `, "volferryd", "volferry-registry")
	types := declared(t, `(?m)^\(type (\w+_t)\)`, "../selinux/volferry.cil")
	units, err := filepath.Glob("../../systemd/*.service")
	if err != nil || len(units) == 0 {
		t.Fatalf("units: %v, %v", units, err)
	}
	for _, path := range units {
		unit := read(t, path)
		profile, named := setting(unit, "AppArmorProfile")
		if want := !slices.Contains(withoutProfile, filepath.Base(path)); named != want || named && !slices.Contains(profiles, profile) {
			t.Errorf("%s has the profile %q, of %v", path, profile, profiles)
		}
		// The types of daemons follow from the labels of their programs.
		if label, named := setting(unit, "SELinuxContext"); named && !slices.Contains(types, strings.Split(label, ":")[2]) {
			t.Errorf("%s has the label %q, and the module the types %v", path, label, types)
		}
	}
}

// setting returns the value of a setting that systemd ignores where the kernel lacks the module.
func setting(unit, name string) (string, bool) {
	value := regexp.MustCompile(`(?m)^` + name + `=-(.+)$`).FindStringSubmatch(unit)
	if value == nil {
		return "", false
	}
	return value[1], true
}

func TestTheParserOfAppArmorTakesTheProfiles(t *testing.T) {
	parser, err := exec.LookPath("apparmor_parser")
	if err != nil {
		t.Skip("SKIPPED: there is no apparmor_parser on this machine")
	}
	for _, file := range []string{"volferryd", "volferry-registry"} {
		if out, err := exec.CommandContext(t.Context(), parser, "--skip-kernel-load", "--skip-cache", "--quiet", file).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v: %s", file, err, out)
		}
	}
}

// declared returns the names in files.
func declared(t *testing.T, pattern string, files ...string) (names []string) {
	t.Helper()
	for _, file := range files {
		for _, name := range regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, file), -1) {
			names = append(names, name[1])
		}
	}
	return names
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
