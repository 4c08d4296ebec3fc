// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
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
// takes moves back, ends and starts guests, and kills the programs meanwhile. It ends at the
// first lost write, and at whatever else is not as it has to be after a round.
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
	rnd, seed := chance(t)
	t.Logf("the same choices again: make soak SOAK=%s SEED=%d", length, seed)
	s := &soak{host: startHost(t), rnd: rnd, done: map[string]int{}}
	for range soakGuests {
		s.guests = append(s.guests, s.runningGuest(t, s.diskIn(t, s.poolA, api.FormatRaw)))
	}
	end, rounds := time.Now().Add(length), 0
	for ; time.Now().Before(end) && s.struck < kills && !t.Failed(); rounds++ {
		t.Run(strconv.Itoa(rounds+1), s.round)
	}
	t.Logf("seed %d: %d rounds, %v; %d moves were under way when a program was killed with SIGKILL", seed, rounds, s.done, s.struck)
	for _, g := range s.guests {
		g.assertSettled(t)
	}
}

// soak is what is moved about, and how it is chosen.
type soak struct {
	*host

	rnd    *rand.Rand
	guests []*guest
	done   map[string]int
	struck int // moves that were under way when a program died
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
}

// choose chooses a deed for a guest.
func (s *soak) choose(t *testing.T, g *guest) deed {
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
	deeds := []deed{
		{"rest", func(context.Context) error { return nil }},
		{"move", ctl(move...)},
		{"slow move", moved},
		{"move and cancel", during(ctl("migration", "cancel", g.volumeName("vda")))},
		{"move and destroy", during(virsh("destroy"))},
		{"move and reset", during(virsh("reset"))},
		{"stop and start", func(ctx context.Context) error {
			if err := stop(ctx); err != nil {
				return err
			}
			return start(ctx)
		}},
	}
	return deeds[s.rnd.IntN(len(deeds))]
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
	for i := range s.guests {
		go func() { answers[i] <- chosen[i].do(t.Context()) }()
	}
	<-time.After(after)
	died := time.Now()
	s.blows()[blow](t)
	ends := make([]api.Migration, len(s.guests))
	had := make([]bool, len(s.guests))
	for i, g := range s.guests {
		answer := <-answers[i]
		if had[i] = g.hasMoved(t); had[i] {
			ends[i], _ = g.endMigration(t, answer)
			if m := ends[i]; blow != "nothing" && m.StartedAt.Before(died) && (m.FinishedAt == nil || m.FinishedAt.After(died)) {
				s.struck++
			}
		}
		g.startsAgain(t)
	}
	s.hearsRegistry(t)
	for i, g := range s.guests {
		g.seesItsDisks(t)
		if had[i] {
			g.endedRight(t, ends[i], "running")
		} else {
			g.assertSettledAndGoOn(t)
		}
		g.assertMonitorAgrees(t)
	}
}

// hasMoved says whether there was ever a migration of the guest's volumes.
func (g *guest) hasMoved(t *testing.T) bool {
	t.Helper()
	return len(get[[]api.Migration](t, g.host, "migrations", "migration", "list", "--all", "--instance", g.Name)) > 0
}
