// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"golang.org/x/sync/errgroup"
)

const (
	clients = 50
	// operators is how many of the clients are no host's.
	operators = 8
	// volumesAtOnce is few, so that the clients are in each other's way.
	volumesAtOnce = 10
	// A round is short, so that an order of what happened in it is found soon.
	roundTime    = 1500 * time.Millisecond
	actsPerRound = 60
)

// round is what happened between two moments at which nothing was asked.
type round struct {
	first   map[string]world // by volume
	history []porcupine.Operation
}

// Whatever the clients were answered, there is an order in which a registry that
// does one thing after the other would have answered so, whenever it was killed
// and however long it stood still.
func TestLockOperationsAreLinearizableUnderDeathAndPauses(t *testing.T) {
	seed, total := seedOf(t), scaled(8*time.Second, 75*time.Second)
	c := newCluster(t, "a", "b", "c")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	trouble := trouble{every: 400 * time.Millisecond, until: 1500 * time.Millisecond, pauses: true}
	haunted := make(chan error, 1)
	go func() { haunted <- trouble.haunt(ctx, c, random(seed, 0)) }()

	begin := time.Now()
	var rounds []round
	for n := uint64(0); time.Since(begin) < total; n++ {
		rounds = append(rounds, playRound(t, c, seed+n, begin))
	}
	stop()
	if err := <-haunted; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d kills, %d pauses", trouble.kills, trouble.stops)
	checkRounds(t, rounds)
	c.checkInvariants(t)
}

// playRound has all clients at work on volumes of their own round.
func playRound(t *testing.T, c *cluster, seed uint64, begin time.Time) round {
	t.Helper()
	f := &field{cluster: c}
	for i, h := range c.hosts {
		for range 2 {
			f.instances[i] = append(f.instances[i], c.instance(t, h))
		}
	}
	r := round{first: map[string]world{}}
	for n := range volumesAtOnce {
		v := c.volume(t, c.hosts[n%hostCount], []string{oneType, manyType}[n%2])
		f.volumes = append(f.volumes, v.ID)
		r.first[v.ID] = c.firstWorld(t, n%2 == 1, n%hostCount)
	}
	actors := make([]*actor, clients)
	for n := range actors {
		of := -1
		if n >= operators {
			of = n % hostCount
		}
		actors[n] = newActor(t, f, n, of, seed, begin)
	}
	end := time.Now().Add(roundTime)
	group, ctx := errgroup.WithContext(t.Context())
	for _, a := range actors {
		group.Go(func() error {
			for n := 0; n < actsPerRound && time.Now().Before(end); n++ {
				if err := a.act(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	all := make([]*history, len(actors))
	for i, a := range actors {
		all[i] = &a.history
	}
	r.history = merged(all)
	return r
}

// firstWorld is the world of a new volume while nobody asks for anything.
func (c *cluster) firstWorld(t *testing.T, many bool, keeper int) world {
	t.Helper()
	w := world{many: many, generation: 1, keeper: keeper}
	for i, h := range c.hosts {
		now, _, err := insist(t.Context(), func(ctx context.Context) (hostNow, error) {
			got, err := c.operator.Host(ctx, h.id)
			return hostNow{got.Epoch, got.Status == "fenced"}, err
		})
		if err != nil {
			t.Fatal(err)
		}
		w.epochs[i], w.fenced[i] = now.epoch, now.fenced
	}
	return w
}

type hostNow struct {
	epoch  int64
	fenced bool
}

// checkRounds looks for the orders, on all processors.
func checkRounds(t *testing.T, rounds []round) {
	t.Helper()
	operations, refused, unknown := 0, 0, 0
	var group errgroup.Group
	group.SetLimit(runtime.NumCPU())
	for _, r := range rounds {
		for _, o := range r.history {
			operations++
			if a := o.Output.(answer); a.unknown { //nolint:errcheck // it is always one
				unknown++
			} else if a.code != "" {
				refused++
			}
		}
		for volume, first := range r.first {
			group.Go(func() error { return checkLinearizable(first, ofVolume(r.history, volume)) })
		}
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	t.Logf("%d rounds, %d operations, %d refused, %d of unknown outcome", len(rounds), operations, refused, unknown)
}
