// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"testing"
)

func TestTheCallerOfAnOpIsTheFirstWhoAskedForIt(t *testing.T) {
	var c Callers
	c.Note("op", "ann")
	c.Note("op", "bob")
	for key, want := range map[string]string{"op": "ann", "op.register": "ann", "op.completing.1": "ann", "other": "", "": ""} {
		if got := c.Of(key); got != want {
			t.Errorf("of %q: %q, want %q", key, got, want)
		}
	}
	for i := range mostCallers {
		c.Note(fmt.Sprint(i), "cid")
	}
	if got := c.Of("op"); got != "" || len(c.byOp) != mostCallers {
		t.Errorf("the oldest of %d is still %q", len(c.byOp), got)
	}
}
