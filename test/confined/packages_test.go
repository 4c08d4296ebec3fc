// SPDX-License-Identifier: Apache-2.0

package confined

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/volferry/volferry/test/site"
	"github.com/volferry/volferry/test/vm"
	"github.com/volferry/volferry/test/vm/boot"
)

// unconfined is the service without a profile. The file of the profiles says why.
const unconfined = "volferryd-processes"

// deniedAtEnd is printed after what the kernel has denied.
const deniedAtEnd = "end of what was denied"

func TestThePackagesConfineTheirServicesByAppArmor(t *testing.T) {
	labels := labelsOfServices(t, vm.AppArmor)
	for service, label := range labels {
		want := service + " (enforce)"
		switch service {
		case "volferryd":
			want = "libvirt-" + want
		case unconfined:
			want = "unconfined"
		}
		if label != want {
			t.Errorf("%s runs with the label %q, want %q", service, label, want)
		}
	}
}

func TestThePackagesConfineTheirServicesBySELinux(t *testing.T) {
	labels := labelsOfServices(t, vm.SELinux)
	types := map[string]string{"volferry-registry": "volferry_registry_t", "volferryd": "volferryd_t", "volferryd-connectors": "volferryd_connectors_t"}
	for service, label := range labels {
		want, named := types[service]
		if !named {
			want = "volferryd_helper_t"
		}
		if !strings.HasPrefix(label, "system_u:system_r:"+want+":") {
			t.Errorf("%s runs with the label %q, want the type %s", service, label, want)
		}
	}
}

// labelsOfServices installs the packages on a machine with a security module, and returns the label
// of each service as the kernel has it. It fails the test if the kernel denies something to any
// program.
func labelsOfServices(t *testing.T, security vm.SecurityModule) map[string]string {
	t.Helper()
	root, err := site.Root()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = vm.NewUserMode(t, security).Run(t.Context(), t.TempDir(), vm.Config{
		Shares:  []vm.Share{{Host: root, Share: boot.Share{Tag: "source", Path: "/source"}}},
		Command: []string{"/source/test/confined/packages.sh"},
	}, &out)
	if err != nil {
		t.Fatalf("%v:\n%s", err, out.Bytes())
	}
	text := strings.ReplaceAll(out.String(), "\r", "")
	t.Log(text)
	labels := map[string]string{}
	for _, found := range regexp.MustCompile(`(?m)^label of (\S+): (.*?)\s*$`).FindAllStringSubmatch(text, -1) {
		labels[found[1]] = found[2]
	}
	if len(labels) != 9 {
		t.Fatalf("the machine has printed %d labels: %v", len(labels), labels)
	}
	if !strings.Contains(text, "confines volferryd, ") {
		t.Error("doctor does not report that the daemon is confined")
	}
	for line := range strings.Lines(text) {
		// Debian's policy of SELinux denies something to programs of Debian, too.
		if strings.Contains(line, `apparmor="DENIED"`) || strings.Contains(line, "avc: ") && strings.Contains(line, ":volferry") {
			t.Errorf("the kernel has denied: %s", line)
		}
	}
	if !strings.Contains(text, deniedAtEnd) {
		t.Error("the machine has not printed what its kernel has denied")
	}
	return labels
}
