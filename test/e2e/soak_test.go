// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/crash"
)

// soakEnv is for how long TestSoak goes on at most, and killsEnv how many moves are to be under way
// when a program is killed with SIGKILL until it ends before that. make soak sets them.
const (
	soakEnv  = "VOLFERRY_SOAK"
	killsEnv = "VOLFERRY_KILLS"
)

// soakGuests is how many guests have their volumes moved at a time.
const soakGuests = 3

// TestSoak moves the volumes of several guests that write, at the same time and at random, and
// takes moves back, gives guests a second volume and takes it away, ends, kills and starts them,
// and kills the programs meanwhile. It ends at the first lost write, and at whatever else is not as
// it has to be after a round.
func TestSoak(t *testing.T) {
	if os.Getenv(soakEnv) == "" {
		t.Skip("SKIPPED: left to make soak")
	}
	length, err := time.ParseDuration(os.Getenv(soakEnv))
	if err != nil {
		t.Fatal(err)
	}
	kills := math.MaxInt
	if text := os.Getenv(killsEnv); text != "" {
		if kills, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	rnd, seed := crash.Chance(t)
	t.Logf("the same choices again: make soak SOAK=%s SEED=%d", length, seed)
	s := &soak{host: startHost(t), rnd: rnd, done: map[string]int{}}
	for range soakGuests {
		g := s.runningGuest(t, s.diskIn(t, s.poolA, api.FormatRaw))
		s.guests = append(s.guests, &soaked{g, s.adoptVolume(t, s.diskIn(t, s.poolA, api.FormatRaw))})
	}
	end, rounds := time.Now().Add(length), 0
	for ; time.Now().Before(end) && s.struck < kills && !t.Failed(); rounds++ {
		t.Run(strconv.Itoa(rounds+1), s.round)
	}
	t.Logf("seed %d: %d rounds, %v; %d moves were under way when a program was killed with SIGKILL", seed, rounds, s.done, s.struck)
	for _, g := range s.guests {
		g.assertSettled(t)
		for _, p := range g.plugged {
			p.assertHolds(t)
		}
	}
}

// soak is what is moved about, and how it is chosen.
type soak struct {
	*host

	rnd    *rand.Rand
	guests []*soaked
	done   map[string]int
	struck int // moves that were under way when a program died
}

// soaked is a guest that writes, with a volume that comes to it and leaves it.
type soaked struct {
	*guest

	spare *volume
}

// within is a random time below most.
func (s *soak) within(most time.Duration) time.Duration {
	return time.Duration(s.rnd.Int64N(int64(most)))
}

// deed is what is done to a guest in a round. Do runs beside those of others, and so chooses
// nothing and asserts nothing.
type deed struct {
	name string
	do   func(context.Context) error
	// plugs is the command line, if it attaches or detaches a volume.
	plugs []string
}

// choose chooses a deed for a guest.
func (s *soak) choose(t *testing.T, g *soaked) deed {
	t.Helper()
	wait := s.within(4 * time.Second)
	ctl := func(args ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := s.Ctl(ctx, args...)
			return err
		}
	}
	virsh := func(word string) func(context.Context) error {
		return func(ctx context.Context) error {
			// It may be off already, or libvirtd dead: that is no matter.
			_, _ = s.Libvirtd.Virsh(ctx, word, g.Name)
			return nil
		}
	}
	move := g.moveElsewhere(t)
	moved := ctl(append(move, "--bandwidth", "24MiB/s")...)
	during := func(then func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			answer := make(chan error, 1)
			go func() { answer <- moved(ctx) }()
			<-time.After(wait)
			err := then(ctx)
			return cmp.Or(<-answer, err)
		}
	}
	stop, start := ctl("instance", "stop", "--force", g.Name), ctl("instance", "start", g.Name)
	plug := []string{"volume", "attach", g.spare.name, g.Name}
	if len(g.plugged) > 0 {
		plug[1] = "detach"
	}
	deeds := []deed{
		{name: "rest", do: func(context.Context) error { return nil }},
		{name: "move", do: ctl(move...)},
		{name: "slow move", do: moved},
		{name: "move and cancel", do: during(ctl("migration", "cancel", g.volumeName("vda")))},
		{name: "move and destroy", do: during(virsh("destroy"))},
		{name: "move and reset", do: during(virsh("reset"))},
		{name: "kill", do: g.dies}, // every write is with the kernel
		{name: "move and kill", do: during(g.diesWithAnOverlay)},
		{name: "stop and start", do: func(ctx context.Context) error {
			if err := stop(ctx); err != nil {
				return err
			}
			return start(ctx)
		}},
		{name: plug[1], do: ctl(plug...), plugs: plug},
	}
	return deeds[s.rnd.IntN(len(deeds))]
}

// diesWithAnOverlay is dies where QEMU may have in its memory alone where the overlay has what.
func (g *guest) diesWithAnOverlay(ctx context.Context) error {
	if err := g.dies(ctx); err != nil {
		return err
	}
	return g.cutNow(ctx)
}

// dies kills the guest's process, beside a test, and returns when libvirt knows it. libvirtd may be
// dead meanwhile.
func (g *guest) dies(ctx context.Context) error {
	if had, err := g.killsProcess(); err != nil || !had {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if state, err := g.State(ctx); err == nil && state == "shut off" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("guest %s was killed, and is not off: %w", g.Name, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// killsProcess kills the guest's process. It has none if it is off.
func (g *guest) killsProcess() (had bool, err error) {
	pid, err := g.process()
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = unix.Kill(pid, unix.SIGKILL)
	}
	return err == nil, err
}

// blows are what dies in a round.
func (s *soak) blows() map[string]func(*testing.T) {
	blows := s.others()
	blows["nothing"] = nothingElse
	blows["daemon"] = func(t *testing.T) { s.restartDaemon(t) }
	return blows
}

// round does something to each guest, at the same time, and kills a program meanwhile.
func (s *soak) round(t *testing.T) {
	names := []string{"nothing", "daemon", "libvirtd", "registry"}
	blow, after := names[s.rnd.IntN(len(names))], s.within(6*time.Second)
	chosen, answers := make([]deed, len(s.guests)), make([]chan error, len(s.guests))
	what := fmt.Sprintf("%s dies after %s;", blow, after.Round(time.Millisecond))
	for i, g := range s.guests {
		chosen[i], answers[i] = s.choose(t, g), make(chan error, 1)
		what += fmt.Sprintf(" %s: %s", g.Name, chosen[i].name)
		s.done[chosen[i].name]++
	}
	s.done[blow+" died"]++
	t.Log(what)
	began := time.Now()
	for i := range s.guests {
		go func() { answers[i] <- chosen[i].do(t.Context()) }()
	}
	<-time.After(after)
	died := time.Now()
	s.blows()[blow](t)
	said := make([]error, len(s.guests))
	ends := make([]*api.Migration, len(s.guests))
	for i, g := range s.guests {
		said[i] = <-answers[i]
		if g.hasMoved(t) {
			answer := said[i]
			if chosen[i].plugs != nil {
				answer = nil // of no migration
			}
			m, _ := g.endMigration(t, answer)
			ends[i] = &m
			deaths := slices.DeleteFunc(slices.Clone(g.cuts), began.After)
			if blow != "nothing" {
				deaths = append(deaths, died)
			}
			if slices.ContainsFunc(deaths, func(at time.Time) bool { return wasUnderWay(m, at) }) {
				s.struck++
			}
		}
		g.startsAgain(t)
	}
	s.hearsRegistry(t)
	for i, g := range s.guests {
		if chosen[i].plugs == nil { // or it has a disk of which it is not known yet
			g.seesItsDisks(t)
		}
		switch {
		case chosen[i].plugs != nil:
			g.plugEnds(t, g.spare, "running", chosen[i].plugs, said[i])
		case ends[i] != nil:
			g.endedRight(t, *ends[i], "running")
		default:
			g.assertSettledAndGoOn(t)
		}
		for _, p := range g.plugged {
			g.endedIn(t, "running", p)
		}
		g.assertMonitorAgrees(t)
	}
}

// wasUnderWay reports whether the migration had begun and was not over at that time.
func wasUnderWay(m api.Migration, at time.Time) bool {
	return m.StartedAt.Before(at) && (m.FinishedAt == nil || m.FinishedAt.After(at))
}

// hasMoved reports whether there was ever a migration of the guest's volumes.
func (g *guest) hasMoved(t *testing.T) bool {
	t.Helper()
	return len(get[[]api.Migration](t, g.host, "migrations", "migration", "list", "--all", "--instance", g.Name)) > 0
}
