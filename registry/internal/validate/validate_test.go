// SPDX-License-Identifier: Apache-2.0

package validate_test

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/registry/internal/validate"
)

// `virsh vol-delete --vol=disk1 --pool p` deletes disk1, and a file may be called so.
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
