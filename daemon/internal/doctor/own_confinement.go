// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/volferry/volferry/daemon/internal/process"
	"github.com/volferry/volferry/internal/api"
)

// The profile of AppArmor and the type of SELinux that the packages have for the daemon.
const (
	ownProfile = "libvirt-volferryd"
	ownType    = "volferryd_t"
)

// ownConfinement reports whether the host's security module confines the daemon as the packages
// have it. The unit alone does not tell: systemd starts the daemon also without its profile. root
// is "/" but in tests.
func ownConfinement(root string) []api.Check {
	label := process.SecurityLabel(filepath.Join(root, "proc/self"))
	if user := strings.Split(label, ":"); len(user) >= 3 {
		if user[2] == ownType {
			return []api.Check{ok("security", "SELinux confines volferryd, as "+label)}
		}
		return []api.Check{{
			Name: "security", Status: "warn", Message: fmt.Sprintf("SELinux runs volferryd as %s, and not as %s", user[2], ownType),
			Advice: "semodule --install /usr/share/volferryd/volferry.cil, restorecon /usr/sbin/volferryd, and systemctl restart volferryd",
		}}
	}
	if _, err := os.Stat(filepath.Join(root, "etc/apparmor.d/volferryd")); err != nil || !appArmorIsOn(root) {
		return nil
	}
	if label == ownProfile+" (enforce)" {
		return []api.Check{ok("security", "AppArmor confines volferryd, by the profile "+ownProfile)}
	}
	return []api.Check{{
		Name: "security", Status: "warn", Message: fmt.Sprintf("AppArmor does not confine volferryd by the profile %s: the kernel has the label %q", ownProfile, label),
		Advice: "apparmor_parser --replace /etc/apparmor.d/volferryd, and systemctl restart volferryd",
	}}
}

func appArmorIsOn(root string) bool {
	text, err := os.ReadFile(filepath.Join(root, "sys/module/apparmor/parameters/enabled"))
	return err == nil && strings.TrimSpace(string(text)) == "Y"
}
