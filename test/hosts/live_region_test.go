// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"os"
	"testing"
	"time"

	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/lab/workload"
)

// region is the first block of the region in a volume with one: in its last third, which no
// writer has. All of it is in one dirty unit, which so is one of both guests all the time.
const region = volumeBytes/workload.BlockSize*5/6 + 1

// emptyRegion makes the region of a volume that nobody has open one where nobody has counted.
func emptyRegion(t *testing.T, d disk) {
	t.Helper()
	f, err := os.OpenFile(d.lab.Path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(make([]byte, workload.RegionBlocks*workload.BlockSize), region*workload.BlockSize)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err != nil || closed != nil {
		t.Fatal(err, closed)
	}
}

// Beside blocks of their own, the guests of two hosts have a region where both count one number
// up, each time under a lock that they keep there: what one of them reads the other has just
// written. No count is lost, not while the bytes are copied and not in the pause.
func TestRegionThatTwoHostsWriteUnderALockInItMovesWhileTheyDo(t *testing.T) {
	t.Parallel()
	leftToTestLiveShared(t)
	s := startSharedLiveOf(t, shape{region: true}, "hv1", "hv2")
	s.g1.Count(s.disk1, lab.Counting{Region: region, Self: 0, Interval: time.Millisecond})
	s.g2.Count(s.disk2, lab.Counting{Region: region, Self: 1, Interval: time.Millisecond})
	s.goOnCounting(t)
	before := len(s.g1.Counted(s.disk1)) + len(s.g2.Counted(s.disk2))
	s.migrate(t, "--bandwidth", "8MiB/s")
	if now := s.now(t); now.Location.Pool != newSharedPool {
		t.Errorf("after the move the volume is %+v", now)
	}
	t.Logf("counted up %d times in the move", len(s.g1.Counted(s.disk1))+len(s.g2.Counted(s.disk2))-before)
	s.goOnCounting(t)
	s.assertCounted(t)
	s.assertOver(t)
}

// goOnCounting waits until both guests have counted, from now on.
func (s *sharedLive) goOnCounting(t *testing.T) {
	t.Helper()
	const enough = 20
	for g, disk := range map[*guest]string{s.g1: s.disk1, s.g2: s.disk2} {
		if err := g.WaitCounting(t.Context(), disk, enough); err != nil {
			t.Fatal(err)
		}
	}
}

// assertCounted ends the counting, and claims that no guest has counted up to what the other
// one has, and that the number has all that they were told is done.
func (s *sharedLive) assertCounted(t *testing.T) {
	t.Helper()
	var by [workload.Counters]uint64
	to := map[uint64]string{}
	for i, of := range []struct {
		*guest
		disk string
	}{{s.g1, s.disk1}, {s.g2, s.disk2}} {
		if err := of.StopCounting(t.Context(), of.disk); err != nil {
			t.Fatal(err)
		}
		for _, value := range of.Counted(of.disk) {
			by[i]++
			if other, twice := to[value]; twice {
				t.Errorf("guest %s and guest %s have both counted up to %d", other, of.Name, value)
			}
			to[value] = of.Name
		}
	}
	n, err := lab.ReadCount(s.now(t).Location.Path, region)
	if err != nil {
		t.Fatal(err)
	}
	if n.By != by || n.Value != by[0]+by[1] {
		t.Errorf("the region has %+v, and the guests have counted %d times", n, by)
	}
	t.Logf("counted up to %d, by each %d", n.Value, n.By)
}
