// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/volferry/volferry/daemon/connectors/internal/command"
)

func TestTheCommandsOfLVMSayNothingOfDescriptorsThatTheyInherit(t *testing.T) {
	const variable = "LVM_SUPPRESS_FD_WARNINGS"
	t.Setenv(variable, "") // restored at the end of the test
	if err := quieten(); err != nil {
		t.Fatal(err)
	}
	if text, err := command.Run(t.Context(), "printenv", variable); err != nil || string(text) != "1\n" {
		t.Errorf("%s is %q (%v)", variable, text, err)
	}
}
