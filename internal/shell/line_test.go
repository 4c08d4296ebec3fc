// SPDX-License-Identifier: Apache-2.0

package shell_test

import (
	"testing"

	"github.com/volferry/volferry/internal/shell"
)

func TestAShellReadsTheWordsOfALineAsTheyAre(t *testing.T) {
	for want, words := range map[string][]string{
		"volferryctl instance unlock web1":                                {"volferryctl", "instance", "unlock", "web1"},
		"volferryctl instance unlock 'x;touch /tmp/y'":                    {"volferryctl", "instance", "unlock", "x;touch /tmp/y"},
		`volferryctl instance unlock 'a'\''$(b)'`:                         {"volferryctl", "instance", "unlock", "a'$(b)"},
		"virsh define '~.xml'":                                            {"virsh", "define", "~.xml"},
		"qemu-img rebase -b '' /a":                                        {"qemu-img", "rebase", "-b", "", "/a"},
		"virsh destroy web1":                                              {"virsh", "destroy", "--", "web1"},
		"virsh destroy -- --domain=web1":                                  {"virsh", "destroy", "--", "--domain=web1"},
		"virsh vol-delete --pool p -- --vol=x":                            {"virsh", "vol-delete", "--pool", "p", "--", "--vol=x"},
		"qemu-img bitmap --remove -- /a -b":                               {"qemu-img", "bitmap", "--remove", "--", "/a", "-b"},
		"virsh snapshot-delete --metadata -- web1 '-x y'":                 {"virsh", "snapshot-delete", "--metadata", "--", "web1", "-x y"},
		"grep -zxqF -e 6fa7a4f6-6a7c-4c4d-9fd2-ec3d94ac1b0f /proc/1/stat": {"grep", "-zxqF", "-e", "6fa7a4f6-6a7c-4c4d-9fd2-ec3d94ac1b0f", "/proc/1/stat"},
	} {
		if got := shell.Line(words...); got != want {
			t.Errorf("%q is written as %s, not %s", words, got, want)
		}
	}
}
