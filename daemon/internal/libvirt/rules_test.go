// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/test/lab"
)

const profileName = "libvirt-" + openFilesID

// confine gives process 42 the label, and its profile these rules.
func confine(t *testing.T, label, rules string) {
	t.Helper()
	old := rulesDir
	rulesDir = t.TempDir()
	t.Cleanup(func() { rulesDir = old })
	attr := filepath.Join(string(procDir), "42", "attr")
	if err := errors.Join(
		os.MkdirAll(attr, 0o755), os.WriteFile(filepath.Join(attr, "current"), []byte(label), 0o600),
		os.WriteFile(filepath.Join(rulesDir, profileName+".files"), []byte(rules), 0o600),
	); err != nil {
		t.Fatal(err)
	}
}

// The rules that Debian 12 writes for a guest started on an overlay, with its additions for a job.
func TestARuleThatDeniesWinsOverThoseThatAJobGets(t *testing.T) {
	src := emptyFile(t, "src.raw")
	link, dir := filepath.Join(t.TempDir(), "link"), filepath.Join(t.TempDir(), "dir")
	if err := errors.Join(os.Symlink(src, link), os.Symlink(filepath.Dir(src), dir)); err != nil {
		t.Fatal(err)
	}
	later := filepath.Join(filepath.Dir(src), "later.raw")
	rules := func(path string) string {
		return "  \"/overlays/o.qcow2\" rwk,\n  \"" + path + "\" rk,\n  # don't audit writes to readonly files\n  deny \"" + path + "\" w,\n  \"" + path + "\" rwk,\n"
	}
	const enforced = profileName + " (enforce)\n"
	for name, c := range map[string]struct {
		label, rules, path, denied string
	}{
		"below the overlay":              {enforced, rules(src), src, src},
		"by a link":                      {enforced, rules(src), link, src},
		"an image that is made later":    {enforced, rules(later), filepath.Join(dir, "later.raw"), later},
		"another image":                  {enforced, rules("/other"), src, ""},
		"one that begins like it":        {enforced, rules(src + "2"), src, ""},
		"a profile that only complains":  {profileName + " (complain)\n", rules(src), src, ""},
		"rules of an earlier run":        {"unconfined\n", rules(src), src, ""},
		"another profile, without rules": {"qemu-of-mine (enforce)\n", rules(src), src, ""},
	} {
		fakeProc(t)
		fakeProcess(t, 42, qemuUID, qemuExe, nil)
		confine(t, c.label, c.rules)
		rule, err := connOfQEMU().WriteDeniedBy(t.Context(), openFilesID, c.path)
		switch {
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case c.denied == "" && rule != nil:
			t.Errorf("%s: %+v, want no rule", name, *rule)
		case c.denied != "" && (rule == nil || *rule != hv.Rule{File: filepath.Join(rulesDir, profileName+".files"), Path: c.denied}):
			t.Errorf("%s: %+v, want a rule about %s", name, rule, c.denied)
		}
	}
}

func TestTheKernelSaysWhatConfinesAGuest(t *testing.T) {
	const context = "system_u:system_r:svirt_tcg_t:s0:c107,c434"
	for label, want := range map[string]hv.Confinement{
		"unconfined\n":                        {},
		profileName + " (complain)\n":         {},
		profileName + " (enforce)\n":          {Profile: profileName},
		context + "\x00":                      {Context: context},
		"system_u:system_r:virtd_t:s0\x00":    {Context: "system_u:system_r:virtd_t:s0"},
		"system_u:system_r:unconfined_t:s0\n": {Context: "system_u:system_r:unconfined_t:s0"},
	} {
		fakeProc(t)
		fakeProcess(t, 42, qemuUID, qemuExe, nil)
		confine(t, label, "")
		got, err := connOfQEMU().Confinement(t.Context(), openFilesID)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", label, got, err, want)
		}
		module := map[string]string{profileName: "AppArmor", context: "SELinux"}[want.Profile+want.Context]
		if got.Module() != module {
			t.Errorf("%q: %q confines the guest, want %q", label, got.Module(), module)
		}
	}
}

// Only libvirt's own profiles follow its rules, so for another one it is not asked.
func TestOtherProfilesDenyNothingBelowAnOverlay(t *testing.T) {
	for label, asked := range map[string]bool{
		"unconfined\n": false, "qemu-of-mine (enforce)\n": false, profileName + " (complain)\n": false, profileName + " (enforce)\n": true,
	} {
		fakeProc(t)
		fakeProcess(t, 42, qemuUID, qemuExe, nil)
		confine(t, label, "")
		denies, err := connOfQEMU().DeniesBelow(t.Context(), openFilesID)
		if denies || errors.Is(err, hv.ErrUnavailable) != asked || err != nil && !asked {
			t.Errorf("%q: %t, %v; want that libvirt is asked its version: %t", label, denies, err, asked)
		}
	}
}

func TestWithoutASecurityModuleNothingIsDenied(t *testing.T) {
	fakeProc(t)
	fakeProcess(t, 42, qemuUID, qemuExe, nil)
	if rule, err := connOfQEMU().WriteDeniedBy(t.Context(), openFilesID, emptyFile(t, "src")); rule != nil || err != nil {
		t.Errorf("%+v, %v", rule, err)
	}
}

// helper is libvirt's program that makes the rules. Its dry run works without AppArmor in the
// kernel.
const helper = "/usr/lib/libvirt/virt-aa-helper"

// If libvirt does not write the rule, a cancel is not refused.
func TestTheRulesOfLibvirtsHelperAreUnderstood(t *testing.T) {
	if _, err := os.Stat(helper); err != nil {
		lab.SkipOrFail(t, "the test needs "+helper+" (package libvirt-daemon): "+err.Error())
	}
	src, overlay := emptyFile(t, "src.raw"), emptyFile(t, "overlay.qcow2")
	domain := fmt.Sprintf(`<domain type='qemu'><name>x</name><uuid>%s</uuid><memory>65536</memory><os><type arch='x86_64' machine='pc'>hvm</type></os>
		<devices><disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='%s'/>
		<backingStore type='file'><format type='raw'/><source file='%s'/><backingStore/></backingStore><target dev='vda' bus='virtio'/></disk></devices></domain>`, openFilesID, overlay, src)
	rules := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), helper, append([]string{"--dryrun", "--replace", "--uuid", profileName}, args...)...)
		cmd.Stdin = strings.NewReader(domain)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	made, added := rules(), rules("-F", src)
	if !strings.Contains(added, `"`+src+`" rwk,`) {
		t.Fatalf("for a job it adds: %s", added)
	}
	for name, all := range map[string]string{"of a guest that was started": made, "with what a job gets": made + added} {
		for path, denied := range map[string]bool{src: true, overlay: false} {
			fakeProc(t)
			fakeProcess(t, 42, qemuUID, qemuExe, nil)
			confine(t, profileName+" (enforce)", all)
			if rule, err := connOfQEMU().WriteDeniedBy(t.Context(), openFilesID, path); err != nil || (rule != nil) != denied {
				t.Errorf("rules %s deny to write to %s: %+v, %v, want %v:\n%s", name, path, rule, err, denied, all)
			}
		}
	}
}
