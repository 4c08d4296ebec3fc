// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// QEMU may die of the end of a job under a write of its guest. A complete is
// cancelled in the middle of its fold, again and again, with the guest writing.
func TestCancelsInTheMiddleOfAFoldLeaveTheGuestAlive(t *testing.T) {
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	want, pools := 3, []string{"b", "a"}
	if everyCrash() {
		want = 30
	}
	const ending = "ending the copy job of a migration"
	before := h.logged(t, ending)
	for tries := 1; h.logged(t, ending)-before < want; tries++ {
		if tries > 5*want {
			t.Fatalf("only %d of %d cancels came in the middle of a fold", h.logged(t, ending)-before, tries)
		}
		v := g.start(t, "vda", "--to-pool", pools[0])
		g.writes(t)
		v.copy(t)
		h.ctl(t, append([]string{"--no-wait"}, v.completeArgs()...)...)
		_, err := h.Ctl(t.Context(), append([]string{"-o", "json", "--progress", "none"}, v.cancelArgs()...)...)
		if err != nil {
			mustHaveFailed(t, err, api.CodePastPointOfNoReturn.ExitStatus(), api.CodePastPointOfNoReturn)
			h.ctl(t, "migration", "watch", v.ID)
			pools[0], pools[1] = pools[1], pools[0]
		}
		g.writes(t)
	}
	g.assertSettled(t)
}
