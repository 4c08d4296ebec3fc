// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/crash"
)

// soakEnv is for how long TestSoakOfASite goes on at most, killsEnv how many moves are to be under
// way when a program is killed with SIGKILL until it ends before that. make soak sets them, and
// crash.SeedEnv, from which all follows that it chooses.
const (
	soakEnv  = "VOLFERRY_SOAK"
	killsEnv = "VOLFERRY_KILLS"
)

// TestSoakOfASite moves the volumes of instances of two hosts, boot volumes too, takes moves back,
// stops and starts the instances and has them go from host to host by the shelf, all at random and
// at the same time, and kills the programs of the hosts and the registry meanwhile. It ends at the
// first lost write, and at whatever else is not as it has to be after a round.
func TestSoakOfASite(t *testing.T) {
	if os.Getenv(soakEnv) == "" {
		t.Skip("SKIPPED: left to make soak")
	}
	length, err := time.ParseDuration(os.Getenv(soakEnv))
	if err != nil {
		t.Fatal(err)
	}
	kills := numberIn(t, killsEnv, math.MaxInt)
	rnd, seed := crash.Chance(t)
	t.Logf("the same choices again: make soak SOAK=%s SEED=%d", length, seed)
	s := &siteSoak{cluster: startCluster(t, "hv1", "hv2"), rnd: rnd, done: map[string]int{}}
	for _, name := range []string{"web", "db"} {
		g := s.mobile(t, name)
		ctl(t, s.Registry.Caller(), "instance", "start", name)
		assertBooted(t, g, name)
		g.write(t, "vdb")
		s.guests = append(s.guests, g)
	}
	end, rounds := time.Now().Add(length), 0
	for ; time.Now().Before(end) && s.struck < kills && !t.Failed(); rounds++ {
		t.Run(strconv.Itoa(rounds+1), s.round)
	}
	t.Logf("seed %d: %d rounds, %v; %d moves were under way when a program was killed with SIGKILL", seed, rounds, s.done, s.struck)
}

// numberIn is the number in a variable, or another one where that is empty.
func numberIn(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return int(n) //nolint:gosec // of 63 bits
}

// siteSoak is what goes about between the hosts, and how it is chosen.
type siteSoak struct {
	*cluster

	rnd    *rand.Rand
	guests []*guest
	done   map[string]int
	struck int // moves that were under way when a program died
}

// deed is what is done to an instance in a round. Do runs beside others, and so chooses nothing and
// asserts nothing.
type deed struct {
	name string
	do   func(context.Context) error
}

// choose chooses a deed for an instance.
func (s *siteSoak) choose(t *testing.T, g *guest) deed {
	t.Helper()
	admin, wait := s.Registry.Caller(), time.Duration(s.rnd.Int64N(int64(4*time.Second)))
	call := func(args ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := admin.Ctl(ctx, args...)
			return err
		}
	}
	move := func(disk string, flags ...string) []string {
		v := get[api.Volume](t, admin, "volume", "volume", "show", g.Name+"-"+disk)
		to := sharedPool
		if v.Location.Pool == sharedPool {
			to = newSharedPool
		}
		return append([]string{"volume", "migrate", v.Name, "--to-pool", to, "--delete-source"}, flags...)
	}
	moved := call(move("vdb", "--bandwidth", "8MiB/s")...)
	to := s.Hosts[s.rnd.IntN(len(s.Hosts))]
	deeds := []deed{
		{"move", call(move("vdb")...)},
		{"slow move", moved},
		{"move of a boot volume", call(move("vda")...)},
		{"move and cancel", func(ctx context.Context) error {
			answer := make(chan error, 1)
			go func() { answer <- moved(ctx) }()
			<-time.After(wait)
			err := call("migration", "cancel", g.Name+"-vdb")(ctx)
			return cmp.Or(<-answer, err)
		}},
		{"shelf", func(ctx context.Context) error {
			if err := call("instance", "shelve", g.Name)(ctx); err != nil {
				return err
			}
			return call("instance", "unshelve", g.Name, "--host", to.Name)(ctx)
		}},
		{"stop and start", func(ctx context.Context) error {
			if err := call("instance", "stop", "--force", g.Name)(ctx); err != nil {
				return err
			}
			return call("instance", "start", g.Name)(ctx)
		}},
	}
	return deeds[s.rnd.IntN(len(deeds))]
}

// blow kills a program, which is there again when it returns.
type blow struct {
	name string
	kill func(*testing.T)
}

// blows are what dies in a round.
func (s *siteSoak) blows() []blow {
	blows := []blow{
		{"nothing", func(*testing.T) {}},
		{"the registry", func(t *testing.T) {
			s.Registry.Kill()
			if err := s.Registry.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}},
	}
	for _, h := range s.Hosts {
		blows = append(blows,
			blow{"the daemon of " + h.Name, func(t *testing.T) { restart(t, h) }},
			blow{"libvirtd of " + h.Name, func(t *testing.T) {
				if err := h.Libvirtd.Kill(); err != nil {
					t.Fatal(err)
				}
				if err := h.Libvirtd.Restart(t.Context()); err != nil {
					t.Fatal(err)
				}
			}},
		)
	}
	return blows
}

// round does something to each instance, at the same time, and kills a program meanwhile.
func (s *siteSoak) round(t *testing.T) {
	blows := s.blows()
	b, after := blows[s.rnd.IntN(len(blows))], time.Duration(s.rnd.Int64N(int64(6*time.Second)))
	chosen, answers := make([]deed, len(s.guests)), make([]chan error, len(s.guests))
	what := fmt.Sprintf("%s dies after %s;", b.name, after.Round(time.Millisecond))
	for i, g := range s.guests {
		chosen[i], answers[i] = s.choose(t, g), make(chan error, 1)
		what += fmt.Sprintf(" %s: %s", g.Name, chosen[i].name)
		s.done[chosen[i].name]++
	}
	s.done[b.name+" died"]++
	t.Log(what)
	for i := range s.guests {
		go func() { answers[i] <- chosen[i].do(t.Context()) }()
	}
	<-time.After(after)
	died := time.Now()
	b.kill(t)
	for i, g := range s.guests {
		if err := <-answers[i]; err != nil {
			t.Logf("%s: %v", g.Name, err)
		}
	}
	for i, g := range s.guests {
		s.guests[i] = s.atRest(t, g)
		for _, m := range s.migrationsOf(t, g) {
			if b.name != "nothing" && m.StartedAt.Before(died) && m.FinishedAt.After(died) {
				s.struck++
			}
		}
	}
	for _, g := range s.guests {
		s.assertWhole(t, g)
	}
	s.assertNoLeftovers(t)
}

// atRest does what Volferry says until nothing goes on with an instance and it runs. It returns
// the guest at the host that has it.
func (s *siteSoak) atRest(t *testing.T, g *guest) *guest {
	t.Helper()
	admin := s.Registry.Caller()
	for tries := range 60 {
		for _, h := range s.Hosts {
			for _, op := range get[[]api.Op](t, h.Caller, "ops", "op", "list") {
				_, _ = h.Ctl(t.Context(), "--progress", "none", "op", "watch", op.ID) // what it has come to is looked at
			}
		}
		for _, m := range s.migrationsOf(t, g) {
			if m.State.Final() {
				continue
			}
			if m.Error != nil && strings.Contains(m.Error.Message, "shut it down, start it again") { // in whatever state the registry has it
				s.startedAgain(t, g)
			}
			word := "cancel"
			if m.State == api.MigrationCopied || m.State == api.MigrationCompleting {
				word = "complete"
			}
			if _, err := admin.Ctl(t.Context(), "migration", word, m.ID); err != nil {
				t.Logf("migration %s of %s: %v", word, m.VolumeName, err)
			}
		}
		inst := get[api.Instance](t, admin, "instance", "instance", "show", g.Name)
		open := slices.ContainsFunc(s.migrationsOf(t, g), func(m api.Migration) bool { return !m.State.Final() })
		word := ""
		switch {
		case open:
		case inst.State == api.InstanceStopped:
			word = "start"
		case inst.State == api.InstanceShelved || inst.State == api.InstanceShelvedOffloaded:
			word = "unshelve"
		case inst.State == api.InstanceRunning:
			for _, h := range s.Hosts {
				if h.Name == inst.Host {
					return &guest{Guest: g.At(h.Libvirtd.Connection), host: h, disks: g.disks}
				}
			}
		}
		if word != "" {
			args := []string{"instance", word, g.Name}
			if word == "unshelve" {
				args = append(args, "--host", s.Hosts[tries%len(s.Hosts)].Name)
			}
			if _, err := admin.Ctl(t.Context(), args...); err != nil {
				t.Logf("instance %s of %s: %v", word, g.Name, err)
			}
		}
		<-time.After(500 * time.Millisecond) // what was killed comes back meanwhile
	}
	t.Fatalf("instance %s does not come to rest: %+v, %+v", g.Name, get[api.Instance](t, admin, "instance", "instance", "show", g.Name), s.migrationsOf(t, g))
	return nil
}

// startedAgain ends a guest that libvirt has on another chain than the kernel, since it died inside
// a call, and starts it: recover.md, A guest that libvirt has on the wrong chain.
func (s *siteSoak) startedAgain(t *testing.T, g *guest) {
	t.Helper()
	for _, h := range s.Hosts {
		if _, err := h.Libvirtd.Virsh(t.Context(), "destroy", g.Name); err == nil {
			t.Logf("instance %s is ended at %s, as its migration says", g.Name, h.Name)
		}
	}
	if _, err := s.Registry.Caller().Ctl(t.Context(), "instance", "start", g.Name); err != nil {
		t.Logf("instance start of %s: %v", g.Name, err)
	}
}

// migrationsOf are all migrations of an instance's volumes.
func (s *siteSoak) migrationsOf(t *testing.T, g *guest) []api.Migration {
	t.Helper()
	return get[[]api.Migration](t, s.Registry.Caller(), "migrations", "migration", "list", "--all", "--instance", g.Name)
}

// assertWhole claims that one host has an instance, that it has both of its disks and boots from
// its own, that every write that it was told is done is where the registry has the volume, and
// that nothing is left elsewhere. It writes again when this returns.
func (s *siteSoak) assertWhole(t *testing.T, g *guest) {
	t.Helper()
	admin := s.Registry.Caller()
	s.assertOnlyAt(t, g, g.host)
	assertBooted(t, g, g.Name)
	g.write(t, "vdb")
	g.quiesce(t, "vdb")
	for _, name := range []string{"vda", "vdb"} {
		d := disk{Volume: get[api.Volume](t, admin, "volume", "volume", "show", g.Name+"-"+name)}
		if d.Status != api.VolumeInUse {
			t.Errorf("volume %s is %s", d.Name, d.Status)
		}
		if name == "vdb" {
			assertHolds(t, d, d.Location, g.History(name))
		}
	}
	g.write(t, "vdb")
}

// assertNoLeftovers claims that no host has an overlay, and that the pools that both of them see
// have the volumes' images and nothing else.
func (s *siteSoak) assertNoLeftovers(t *testing.T) {
	t.Helper()
	for _, h := range s.Hosts {
		if left, err := os.ReadDir(h.Overlays()); err != nil || len(left) > 0 {
			t.Errorf("host %s has overlays %v (%v)", h.Name, left, err)
		}
	}
	var want, got []string
	for _, v := range get[[]api.Volume](t, s.Registry.Caller(), "volumes", "volume", "list") {
		want = append(want, v.Location.Path)
	}
	for _, pool := range []string{sharedPool, newSharedPool} {
		files, err := filepath.Glob(filepath.Join(s.Shared, "pool-"+pool, "*"))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, files...)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the pools have %v, want %v", got, want)
	}
}
