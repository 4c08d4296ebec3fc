// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/crash"
	"github.com/volferry/volferry/test/lab"
)

// untilFolding returns when the fold of a complete has begun, or is over already.
func (v *move) untilFolding(t *testing.T) {
	t.Helper()
	eventually(t, "the fold begins", func() bool {
		m := get[api.Migration](t, v.g.host, "migration", "migration", "show", v.ID)
		return m.Phase == "fold" || m.State == api.MigrationCompleted
	})
}

// The guest's process may end with a job, unless the guest is paused. A complete is
// cancelled in the middle of its fold, again and again, with the guest writing.
func TestCancelsInTheMiddleOfAFoldLeaveTheGuestAlive(t *testing.T) {
	leftToTestE2E(t)
	if !crash.Every() {
		t.Skip("SKIPPED: it waits for moments that are rare on a fast machine; make test-crash runs it")
	}
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	want, pools := 30, []string{"b", "a"}
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
		v.untilFolding(t)
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

// endBound is how long the end of a move may take though an image takes its writes so slowly that
// the fold never catches up with its guest: what there is to copy takes less, and the guest is held
// back before that.
const endBound = 3 * time.Minute

// The guest writes at random all over its disk, and the image to which it is brought takes its
// writes so slowly that the fold never catches up: the guest is held back, and stands still in the
// end.

func TestACancelEndsThoughTheGuestWritesFasterThanTheSourceTakes(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	v := g.start(t, "vda", "--to-pool", "b")
	g.writes(t)
	g.endsOnASlowImage(t, v, v.Src.Path, v.cancelArgs(), api.MigrationCancelled)
}

func TestACompleteEndsThoughTheGuestWritesFasterThanTheDestinationTakes(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	v := g.start(t, "vda", "--to-pool", "b")
	g.writes(t)
	v.copy(t)
	g.writes(t)
	g.endsOnASlowImage(t, v, v.Dst.Path, v.completeArgs(), api.MigrationCompleted)
}

// endsOnASlowImage ends a move with each write of QEMU to an image taking long, and claims that it
// ends, within its bound.
func (g *guest) endsOnASlowImage(t *testing.T, v *move, path string, args []string, want api.MigrationState) {
	t.Helper()
	mended := lab.Inject(t, g.pid(t), "-P", path, "-e", "trace=pwrite64,pwritev,pwritev2,io_submit",
		"-e", "inject=pwrite64,pwritev,pwritev2:delay_exit=400000")
	began := time.Now()
	g.host.ctl(t, args...)
	took := time.Since(began)
	mended()
	t.Logf("it took %s", took.Round(time.Second))
	if took < 10*time.Second || took > endBound {
		t.Errorf("it took %s, which is less than a slow image lets it take, or more than %s", took, endBound)
	}
	g.host.untilState(t, v.ID, want)
	g.assertSettledAndGoOn(t)
	g.assertSettled(t)
}
