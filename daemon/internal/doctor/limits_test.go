// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"
)

func TestDoctorNamesALimitThatAMoveHasLeft(t *testing.T) {
	var left []string
	d := &Doctor{Limited: func() []string { return left }}
	if c := d.limits(); c.Status != "ok" {
		t.Errorf("nothing is left, and doctor says %+v", c)
	}
	left = []string{"disk vda of instance web may write 1048576 bytes per second"}
	if c := d.limits(); c.Status != "warn" || !strings.Contains(c.Message, left[0]) {
		t.Errorf("doctor says %+v", c)
	}
}
