// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDoctorSaysWhetherTheHostConfinesTheDaemon(t *testing.T) {
	const profile, on = "etc/apparmor.d/volferryd", "sys/module/apparmor/parameters/enabled"
	for name, c := range map[string]struct {
		files  map[string]string
		status string // "" if there is nothing to say
	}{
		"no security module":       {map[string]string{profile: ""}, ""},
		"AppArmor, no profile":     {map[string]string{on: "Y\n", "proc/self/attr/current": "unconfined\n"}, ""},
		"AppArmor is off":          {map[string]string{on: "N\n", profile: ""}, ""},
		"AppArmor, in its profile": {map[string]string{on: "Y\n", profile: "", "proc/self/attr/apparmor/current": "libvirt-volferryd (enforce)\n"}, "ok"},
		"AppArmor, unconfined":     {map[string]string{on: "Y\n", profile: "", "proc/self/attr/current": "unconfined\n"}, "warn"},
		"AppArmor, that complains": {map[string]string{on: "Y\n", profile: "", "proc/self/attr/current": "libvirt-volferryd (complain)\n"}, "warn"},
		"SELinux, in its type":     {map[string]string{"proc/self/attr/current": "system_u:system_r:volferryd_t:s0\x00"}, "ok"},
		"SELinux, no module":       {map[string]string{"proc/self/attr/current": "system_u:system_r:initrc_t:s0\x00"}, "warn"},
	} {
		root := t.TempDir()
		for path, text := range c.files {
			path = filepath.Join(root, path)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		checks := ownConfinement(root)
		switch {
		case c.status == "" && len(checks) > 0, c.status != "" && (len(checks) != 1 || checks[0].Status != c.status):
			t.Errorf("%s: %+v, want %q", name, checks, c.status)
		case c.status == "warn" && !strings.Contains(checks[0].Advice, "systemctl restart volferryd"):
			t.Errorf("%s: the advice is %q", name, checks[0].Advice)
		}
	}
}
