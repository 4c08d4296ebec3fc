// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/crash"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/lab/syscalls"
	"github.com/volferry/volferry/test/site"
)

// The deaths and hangs of programs inside what they do for a request: at each system call by which
// one of them changes something, of libvirtd in the calls that are made to it. The user does
// nothing but what Volferry or its documentation says.

// callTrial is a request of the user that is made again and again, each time with a program that
// dies, or stands still, at a system call on its way.
type callTrial struct {
	// guest is another guest than one that runs and writes to its one disk.
	guest func(*testing.T) *callGuest
	// begin brings things to where the request can be made, and returns its command line.
	begin func(*callGuest, *testing.T) (args []string)
	// ended does what the answer of the command says until all is over, and claims that it
	// ended right. It returns in one word how.
	ended func(*callGuest, *testing.T, error) string
	// spares: a guest that runs writes on all the time, but for as long as what died or stood still
	// was away.
	spares bool
}

// callGuest is a guest on a host of its own whose programs can be made to die at a system call.
type callGuest struct {
	*guest
	shim *syscalls.Shim
	env  string // of the daemon: its qemu-img and qemu-storage-daemon are some with the shim
	// data is a volume that nobody else has, and root the one that the guest boots from.
	data, root *volume
	away       time.Duration // how long the last program that was struck was
	shelf      *shelf        // the guest, if it goes to the shelf
	sharers    *sharers      // if it is one of them
	// atEnd claims, when all trials are over, that nothing is in progress and nothing was lost.
	atEnd func(*testing.T)
}

// leftOutUnderTheUnit skips the test where each volferryd runs under the unit of its package.
func leftOutUnderTheUnit(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("VOLFERRY_UNIT") != "" {
		t.Skip("SKIPPED: under its unit " + why)
	}
}

// callHost starts a host whose programs can be made to die, with these flags of its daemon. It has
// no guest yet.
func callHost(t *testing.T, flags ...string) (*host, *callGuest) {
	t.Helper()
	leftOutUnderTheUnit(t, "volferryd is started by systemd, and not by us")
	h := startHostIn(t, tempDirOf(t))
	c := &callGuest{shim: syscalls.Load(t, filepath.Join(h.Dir, "shim"))}
	h.Libvirtd.Preload = c.shim.Path()
	if err := h.Libvirtd.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.Use(c.shim.Programs(t, programs(t)))
	h.Flags = flags
	c.env = "PATH=" + c.shim.Tools(t) + ":" + os.Getenv("PATH")
	h.restartDaemon(t, c.env)
	return h, c
}

// newCallGuest starts a guest that runs and writes.
func newCallGuest(t *testing.T) *callGuest {
	t.Helper()
	h, c := callHost(t)
	c.runs(t, h)
	return c
}

// runs gives the host a guest that runs and writes.
func (c *callGuest) runs(t *testing.T, h *host) {
	t.Helper()
	c.guest = h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	c.data = h.adoptVolume(t, h.diskIn(t, h.poolA, api.FormatRaw))
	c.atEnd = c.assertSettled
}

// newGuest is a guest of the trial, in a test that runs beside others already.
func (x *callTrial) newGuest(t *testing.T) *callGuest {
	t.Helper()
	if x.guest != nil {
		return x.guest(t)
	}
	return newCallGuest(t)
}

// untilDone makes a request again that failed, as it may be, until it succeeds or what it asked for
// is so. It says in a word whether that was needed.
func (c *callGuest) untilDone(t *testing.T, args []string, answer error, done func() bool) (end string) {
	t.Helper()
	end = "went on"
	const enough = 3
	for tries := 0; answer != nil; tries++ {
		t.Logf("the answer: %v", answer)
		end = "asked again"
		eventually(t, "no operation is open", func() bool { return len(get[[]api.Op](t, c.host, "ops", "op", "list")) == 0 })
		if done() {
			break
		}
		if tries == enough {
			t.Fatal("it does not end")
		}
		_, answer = c.host.Ctl(t.Context(), args...)
	}
	eventually(t, "no operation is open", func() bool { return len(get[[]api.Op](t, c.host, "ops", "op", "list")) == 0 })
	if !done() {
		t.Fatal("it is answered, and what it asked for is not so")
	}
	return end
}

// way makes the request once, with nothing that disturbs it, and returns the points on its
// way.
func (c *callGuest) way(t *testing.T, x *callTrial, b *callBlow) []syscalls.Point {
	t.Helper()
	args := x.begin(c, t)
	c.shim.Watch(t, b.program, b.at(t, c))
	_, err := c.host.Ctl(t.Context(), args...)
	c.shim.Off(t, b.program)
	if err != nil {
		t.Fatal(err)
	}
	x.ended(c, t, nil)
	// What libvirtd did before the first call is of none.
	points := slices.DeleteFunc(c.shim.Passed(t, b.program), func(p syscalls.Point) bool {
		return p.Call == 0 && b.program == syscalls.Libvirtd
	})
	if len(points) == 0 {
		t.Fatal("no point was passed")
	}
	return points
}

// outcome is what became of a request in which something died.
type outcome struct {
	struck, missed int
	ends           map[string]int
	took           time.Duration
}

func (o *outcome) String() string {
	var ends []string
	for _, end := range slices.Sorted(maps.Keys(o.ends)) {
		ends = append(ends, fmt.Sprintf("%d %s", o.ends[end], end))
	}
	return fmt.Sprintf("%d blows (%s), %d points not reached, %.1f s each", o.struck, strings.Join(ends, ", "), o.missed, o.took.Seconds()/float64(max(1, o.struck+o.missed)))
}

// maxMissed is how many of a hundred points may not be reached again, besides one, and fewMissed
// how many of a few points: what libvirtd does by itself, beside the calls, comes a little sooner
// or later.
const (
	maxMissed = 10
	fewMissed = 2
)

// strikeAtEach makes the request once for each of the points that there is time for, with the blow
// there. After a wrong end it goes on with another guest, for the others are worth knowing.
func (x *callTrial) strikeAtEach(t *testing.T, b *callBlow) {
	t.Helper()
	c := x.newGuest(t)
	points := someOf(t, c.way(t, x, b))
	if b.choose != nil {
		points = b.choose(t, points)
	}
	total, wrong := &outcome{ends: map[string]int{}}, 0
	by := map[string]*outcome{}
	tried := crash.InTime(t, points, func(p syscalls.Point) bool {
		begin := time.Now()
		struck, end := false, ""
		ok := t.Run(p.String(), func(t *testing.T) {
			args := x.begin(c, t)
			start := c.host.startsTrial(t)
			t.Logf("before %s %s", p.Does, p.What)
			var err error
			spared := func(error) {}
			if x.spares {
				spared = c.spared(t)
			}
			struck, err = b.strike(t, c, p, args)
			spared(err)
			end = x.ended(c, t, err)
			start.assertGuarantees(t)
		})
		if !ok {
			if wrong++; wrong == 5 {
				return false
			}
			c = x.newGuest(t)
		}
		if by[p.CallName()] == nil {
			by[p.CallName()] = &outcome{ends: map[string]int{}}
		}
		for _, o := range []*outcome{total, by[p.CallName()]} {
			o.took += time.Since(begin)
			if !struck {
				o.missed++
				continue
			}
			o.struck++
			o.ends[end]++
		}
		return true
	})
	for _, call := range slices.Sorted(maps.Keys(by)) {
		t.Logf("%s: %s", call, by[call])
	}
	t.Logf("%d of %d points: %s, %d wrong ends", tried, len(points), total, wrong)
	if b.program == syscalls.QEMU {
		// How often a guest writes and flushes is another number each time.
		if total.struck == 0 && tried > fewMissed {
			t.Errorf("none of %d points was reached again", tried)
		}
	} else if total.missed-1 > max(fewMissed, tried*maxMissed/100) {
		t.Errorf("%d of %d points were not reached again", total.missed, tried)
	}
	c.atEnd(t)
}

// fewPoints is how many points are struck at without make test-crash, and manyOfOne how many system
// calls of one name on one thing at most: there are thousands of writes to an image, and hundreds
// to the NVRAM of a guest, and one is as another.
const (
	fewPoints = 3
	manyOfOne = 20
)

// someOf are the points at which this run of the tests strikes. It says how many each call has.
func someOf(t *testing.T, points []syscalls.Point) []syscalls.Point {
	t.Helper()
	counts := map[string]int{}
	for _, p := range points {
		counts[p.CallName()]++
	}
	t.Logf("%d points: %v", len(points), counts)
	kind := func(p syscalls.Point) string { return p.CallName() + " " + p.Does + " " + p.What }
	seen, alike := map[string]int{}, map[string]int{}
	for _, p := range points {
		alike[kind(p)]++
	}
	points = slices.DeleteFunc(points, func(p syscalls.Point) bool {
		i, n := seen[kind(p)], alike[kind(p)]
		seen[kind(p)]++
		// The first and the last one are there, and others between them.
		return n > manyOfOne && i != n-1 && i*(manyOfOne-1)/(n-1) == (i-1)*(manyOfOne-1)/(n-1) && i > 0
	})
	if crash.Every() || len(points) <= fewPoints {
		return points
	}
	some := make([]syscalls.Point, fewPoints)
	for i := range some {
		some[i] = points[(2*i+1)*len(points)/(2*fewPoints)]
	}
	return some
}

// callBlow is what happens to a program at a point.
type callBlow struct {
	program syscalls.Program
	does    syscalls.Action
	// image is a part of the path of the images at which the points are, where they are at
	// images.
	image func(*callGuest, *testing.T) string
	// back brings back what was struck.
	back func(*callGuest, *testing.T)
	// choose, if set, chooses from the points.
	choose func(*testing.T, []syscalls.Point) []syscalls.Point
}

// at is the image at which the points are, when the request is about to be made.
func (b *callBlow) at(t *testing.T, c *callGuest) string {
	t.Helper()
	if b.image == nil {
		return ""
	}
	return b.image(c, t)
}

// strike makes the request, with the blow at the point.
func (b *callBlow) strike(t *testing.T, c *callGuest, p syscalls.Point, args []string) (struck bool, answer error) {
	t.Helper()
	c.shim.Arm(t, b.program, b.at(t, c), p, b.does)
	defer c.shim.Off(t, b.program)
	called := c.inBackground(t, args...)
	fired := func() bool { return c.shim.Fired(t, b.program) }
	answered, err := untilAnsweredOr(t, called, fired)
	if answered && b.program == syscalls.QEMU {
		// The guest writes on, and comes to the point perhaps a little later.
		for expired := time.Now().Add(hang); !fired() && time.Now().Before(expired); {
			<-time.After(10 * time.Millisecond)
		}
	}
	c.shim.Off(t, b.program)
	struck = c.shim.Fired(t, b.program) // perhaps with its answer out
	c.away = 0
	if struck {
		fell := time.Now()
		b.back(c, t)
		c.away = time.Since(fell)
	}
	if !answered {
		err = <-called
	}
	return struck, err
}

// disagreeStall is how much longer a guest may stand still where libvirt shows another chain than
// QEMU has, for good: libvirt is asked again for as long, and then the answer of the command is
// that an operator is needed.
const disagreeStall = 3 * time.Second

// spared begins a span of a guest that writes, and returns what ends it with the answer of the
// command: where the guest has run through all of it, no write took longer than a death may cost
// it.
func (c *callGuest) spared(t *testing.T) (end func(answer error)) {
	t.Helper()
	before, err := c.process()
	if err != nil { // it is off
		return func(error) {}
	}
	from := time.Now()
	return func(answer error) {
		t.Helper()
		most := worstStall + c.away
		if failed := (*site.CtlError)(nil); errors.As(answer, &failed) && failed.Exit == api.ExitNeedsOperator {
			most += disagreeStall
		}
		if now, err := c.process(); err != nil || now != before {
			return
		}
		if stall := longestStall(c.History("vda"), span{from, time.Now()}); stall > most {
			t.Errorf("the guest could not write for %v, in which processors were free, and what was struck was away for %v; that is too long", stall, c.away)
		}
	}
}

// untilAnsweredOr waits for the answer of a command, or until cond is true.
func untilAnsweredOr(t *testing.T, called <-chan error, cond func() bool) (answered bool, answer error) {
	t.Helper()
	expired := time.After(lab.Limit(2 * wayTimeout))
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-called:
			return true, err
		case <-tick.C:
			if cond() {
				return false, nil
			}
		case <-expired:
			t.Fatal("neither an answer nor a blow")
		}
	}
}

// forEachCall runs a test for each of some requests, in an order of chance, each with a guest of
// its own.
func forEachCall(t *testing.T, requests map[string]func() *callTrial, blow func() *callBlow) {
	t.Helper()
	requireParallel(t)
	rnd, _ := crash.Chance(t)
	names := slices.Sorted(maps.Keys(requests))
	for _, i := range rnd.Perm(len(names)) {
		t.Run(names[i], func(t *testing.T) {
			crash.LeftToAnotherSeed(t)
			requests[names[i]]().strikeAtEach(t, blow())
		})
	}
}
