// SPDX-License-Identifier: Apache-2.0

package validate_test

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/registry/internal/validate"
)

// `virsh vol-delete --vol=disk1 --pool p` deletes disk1, and a file may have the name --vol=disk1.
func TestNoNameOfALocationMayBeTakenForAnOption(t *testing.T) {
	l := api.Location{Pool: "p", Name: "disk1", Path: "/p/disk1", Format: api.FormatRaw, SizeBytes: 512}
	if err := validate.Location("location", l); err != nil {
		t.Fatal(err)
	}
	name, pool := l, l
	name.Name, pool.Pool = "--vol=disk1", "--pool=q"
	for _, l := range []api.Location{name, pool} {
		expect.Code(t, validate.Location("location", l), api.CodeInvalidArgument)
	}
}

// A name such as 3f2a9c01 could be mistaken for the beginning of another object's id.
func TestNoNameMayBeTheBeginningOfAnID(t *testing.T) {
	for _, name := range []string{"3f2a9c01", "dead", "2024", "3f2a9c01-77d0", "3f2a9c01-77d0-4b1c-9a3e-0123456789ab"} {
		expect.Code(t, validate.Name("volume name", name), api.CodeInvalidArgument, "an id may begin so")
	}
	for _, name := range []string{"web1", "v3f2a9c01", "3f2a9c01.img", "3F2A", "abc"} {
		if err := validate.Name("volume name", name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
