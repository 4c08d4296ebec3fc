// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"cmp"
	"fmt"
	"strings"
)

// The beginnings of the lines that a test prints. host.sh prints the one of the software.
const (
	machineHead  = "machine of the tests: "
	softwareHead = "software of the machine: "
	imageHead    = "image of a guest: "
	skipHead     = "SKIPPED: "
)

// between separates the fields of an image, and none stands for an empty field.
const between, none = "; ", "-"

// unconfined is the machine of `make test-e2e`, which prints no line of a machine.
const unconfined = "none"

// MachineLine is the line of a machine with a security module and a release of Debian. All later
// results are the machine's, until the next such line.
func MachineLine(security, release string) string {
	names := map[string]string{"apparmor": "AppArmor", "selinux": "SELinux", "bookworm": "Debian 12", "trixie": "Debian 13"}
	return machineHead + cmp.Or(names[security], security) + ", " + cmp.Or(names[release], release)
}

// An Image is an image of a volume in a phase of a move.
type Image struct {
	Move  string // the format of the volume, and the end of the move
	Phase string
	Image string // its role in the move
	Open  string // read, write, or both: how QEMU has it open
	Owner string // user and group
	Mode  string // octal
	Label string // of SELinux
	QEMU  string // AppArmor's profile or SELinux's context of the guest's QEMU
}

// fields are the fields in the order of a line.
func (i *Image) fields() []*string {
	return []*string{&i.Move, &i.Phase, &i.Image, &i.Open, &i.Owner, &i.Mode, &i.Label, &i.QEMU}
}

// String is the line of the log.
func (i Image) String() string {
	var texts []string
	for _, field := range i.fields() {
		texts = append(texts, cmp.Or(*field, none))
	}
	return imageHead + strings.Join(texts, between)
}

// parseImage returns the image of a line without its head.
func parseImage(text string) (i Image, err error) {
	texts, fields := strings.Split(text, between), i.fields()
	if len(texts) != len(fields) {
		return i, fmt.Errorf("%q is not the line of an image", text)
	}
	for n, field := range fields {
		*field = texts[n]
	}
	return i, nil
}

// after returns the remaining text of a line of output after a head.
func after(output, head string) (text string, found bool) {
	_, text, found = strings.Cut(strings.TrimSpace(output), head)
	return text, found
}
