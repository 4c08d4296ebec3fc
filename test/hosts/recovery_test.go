// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/site"
)

// What docs/how-to/disaster-recovery.md calls things.
const (
	recoveryPage = "docs/how-to/disaster-recovery.md"
	beginning    = "" // has no heading
	standbyHost  = "hv-b1"
	replicaPool  = "replicas"
	replicaRoot  = "app-root.raw"
	replicaData  = "app-data.raw"
)

// Site A's guest writes until its site is gone; site B takes over with the replicas,
// by the commands of the page and no others.
func TestSiteTakesOverAsThePageSays(t *testing.T) {
	leftToTestHosts(t)
	t.Parallel()
	siteA, siteB := startCluster(t, "hv-a1"), startCluster(t, standbyHost)
	b := siteB.Hosts[0]
	replicas := filepath.Join(b.Dir, replicaPool)
	siteB.pool(t, b, replicaPool, replicas)
	ctl(t, b.Caller, "pool", "list")
	master := siteA.bootable(t, siteA.Hosts[0], "app", localDir(siteA.Hosts[0]), "site-a")
	ctl(t, siteA.Hosts[0].Caller, "instance", "adopt", "app")
	if err := master.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	var standby *guest
	p := openPage(t, recoveryPage, &site.Reader{
		At:      siteB.Registry.Caller(),
		Sockets: map[string]site.Caller{"/run/volferry/volferryd.sock": b.Caller},
		Others: map[string]func(context.Context, string) error{
			"export": func(context.Context, string) error { return nil },
			"virsh": func(context.Context, string) error { // define app.xml
				standby = siteB.bootable(t, b, "app", localDir(b), "trial")
				return nil
			},
		},
		Names: []string{"/srv/replicas", replicas, "/srv/trial", localDir(b), "20GiB", "64MiB", "200GiB", "32MiB"},
	})
	p.follow(t, beginning)
	p.follow(t, "What to check first")
	p.follow(t, "1. Build it at site B, and see that it boots")
	assertBooted(t, standby, "trial")
	p.follow(t, "2. Shelve it, and detach its disks")
	assertNoDomain(t, b, standby)

	r := replicate(t, map[string]string{
		master.disks[0].Path: filepath.Join(replicas, replicaRoot),
		master.disks[1].Path: filepath.Join(replicas, replicaData),
	})
	master.write(t, "vdb")
	r.catchUp(t)
	refuses(t, p.At, api.CodeVolumeInUse, "volume", "adopt", "app-data", "--pool", replicaPool, "--volume-name", replicaData, "--format", "raw")
	master.write(t, "vdb")
	if err := master.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.stop(t)

	p.follow(t, "4. The failover")
	p.assertAllDone(t)
	assertBooted(t, standby, "site-a")
	d := disk{Volume: get[api.Volume](t, p.At, "volume", "volume", "show", "app-data")}
	d.lab = master.disks[1]
	d.lab.Path = d.Location.Path
	standby.know(t, "vdb", d, 1)
	standby.write(t, "vdb")
	standby.quiesce(t, "vdb")
	assertHolds(t, d, d.Location, master.History("vdb"))
	assertHolds(t, d, d.Location, standby.History("vdb"))
}

// assertBooted claims that the guest has booted from the volume that was made with
// this name.
func assertBooted(t *testing.T, g *guest, root string) {
	t.Helper()
	if got, err := g.Root(t.Context()); err != nil || got != root {
		t.Fatalf("guest %s booted from %q (%v), want %q", g.Name, got, err, root)
	}
}

// replicator copies images to another site, again and again, as the storage would.
type replicator struct {
	rounds chan struct{} // one for each time that all was copied
	last   chan struct{} // closed when there is nothing more to come
	ended  chan error
}

// betweenRounds leaves the guests some of the machine.
const betweenRounds = 100 * time.Millisecond

// replicate copies each image to the path beside it from now on.
func replicate(t *testing.T, images map[string]string) *replicator {
	t.Helper()
	r := &replicator{rounds: make(chan struct{}), last: make(chan struct{}), ended: make(chan error, 1)}
	go func() { r.ended <- r.run(t.Context(), images) }()
	return r
}

func (r *replicator) run(ctx context.Context, images map[string]string) (err error) {
	copies := map[*os.File]*os.File{}
	defer func() {
		for src, dst := range copies {
			err = errors.Join(err, src.Close(), dst.Sync(), dst.Close())
		}
	}()
	for from, to := range images {
		src, err := os.Open(from)
		if err != nil {
			return err
		}
		dst, err := os.Create(to)
		if err != nil {
			return errors.Join(err, src.Close())
		}
		copies[src] = dst
	}
	for stopped := false; ; {
		for src, dst := range copies {
			if err := copyAll(dst, src); err != nil || ctx.Err() != nil {
				return errors.Join(err, ctx.Err())
			}
		}
		select {
		case r.rounds <- struct{}{}:
		case <-ctx.Done():
		case <-r.last:
			if stopped {
				return nil
			}
			stopped = true // this round may have begun before the last write
		case <-time.After(betweenRounds):
		}
	}
}

func copyAll(dst, src *os.File) error {
	_, err := src.Seek(0, io.SeekStart)
	if err == nil {
		_, err = dst.Seek(0, io.SeekStart)
	}
	if err == nil {
		_, err = io.Copy(dst, src)
	}
	return err
}

// catchUp returns when all was copied once more.
func (r *replicator) catchUp(t *testing.T) {
	t.Helper()
	for range 2 { // the first may have begun before
		select {
		case <-r.rounds:
		case err := <-r.ended:
			t.Fatal("the replication has ended:", err)
		}
	}
}

// stop brings over what is there, makes it durable, and lets go of the replicas.
func (r *replicator) stop(t *testing.T) {
	t.Helper()
	close(r.last)
	if err := <-r.ended; err != nil {
		t.Fatal(err)
	}
}
