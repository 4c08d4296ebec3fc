// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

// leftToTestUpgrade skips a test that needs the programs of earlier commits.
func leftToTestUpgrade(t *testing.T) {
	t.Helper()
	if os.Getenv("VOLFERRY_UPGRADE") == "" {
		t.Skip("SKIPPED: left to make test-upgrade")
	}
}

// base returns the first commit of upgrades, and the directory of its programs.
func base(t *testing.T) (commit, programs string) {
	t.Helper()
	commit, err := site.Base(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if programs, err = site.BuildAt(t.Context(), commit); err != nil {
		t.Fatal(err)
	}
	return commit, programs
}

// upgrade is the upgrade of one machine to the programs of this source tree.
type upgrade struct {
	what string
	do   func() error
}

func (c *cluster) upgradeRegistry(t *testing.T) upgrade {
	return upgrade{"the registry", func() error {
		c.Registry.Stop()
		c.Registry.Use(built(t))
		return c.Registry.Start(t.Context())
	}}
}

func upgradeHost(t *testing.T, h *site.Host) upgrade {
	return upgrade{"host " + h.Name, func() error {
		h.StopDaemon()
		h.Use(built(t))
		return h.StartDaemon(t.Context())
	}}
}

// A site is upgraded while a drain moves the volumes of running guests: machine after
// machine, each in the middle of a move.
func TestUpgradeInTheMiddleOfADrain(t *testing.T) {
	leftToTestUpgrade(t)
	_, programs := base(t)
	for _, order := range []string{"registry first", "hosts first"} {
		t.Run(order, func(t *testing.T) {
			c := startClusterOf(t, programs, "hv1", "hv2")
			steps := []upgrade{c.upgradeRegistry(t), upgradeHost(t, c.Hosts[0]), upgradeHost(t, c.Hosts[1])}
			if order == "hosts first" {
				steps = append(steps[1:], steps[0])
			}
			c.drainThrough(t, steps)
		})
	}
}

// drainThrough drains a pool through the upgrades, which begin while a volume moves.
func (c *cluster) drainThrough(t *testing.T, steps []upgrade) {
	t.Helper()
	admin := c.Registry.Caller() // with the volferryctl of before
	guests := []*guest{c.guest(t, c.Hosts[0]), c.guest(t, c.Hosts[1])}
	for i, g := range guests {
		c.volume(t, g.host, fmt.Sprintf("lone%d", i), localPool, "default")
		g.write(t, "vda")
	}
	ended := make(chan error, 1)
	go func() {
		_, err := admin.Ctl(t.Context(), "pool", "drain", localPool, "--to", otherPool, "--bandwidth", "1MiB/s")
		ended <- err
	}()
	for moved, step := range steps {
		if moved > 0 {
			c.untilMoved(t, moved)
		}
		var at string
		eventually(t, "a volume is being copied", func() bool { at = c.copying(t); return at != "" })
		t.Logf("%s is upgraded while volume %s is being copied", step.what, at)
		if err := step.do(); err != nil {
			t.Fatalf("upgrade %s: %v", step.what, err)
		}
		get[api.Status](t, c.Registry.Caller(), "status", "status")
		for _, h := range c.Hosts {
			get[api.Status](t, h.Caller, "status", "status")
		}
	}
	if err := <-ended; err != nil {
		t.Errorf("the drain that went through the upgrade: %v", err)
	}
	d := c.drain(t)
	if d.State != api.DrainDone || len(d.Volumes) != 4 {
		t.Errorf("the drain is %s with %d volumes, want it done with 4", d.State, len(d.Volumes))
	}
	for _, v := range d.Volumes {
		if v.State != api.DrainVolumeMoved {
			t.Errorf("volume %s is %s (%v), want it moved", v.VolumeName, v.State, v.Error)
		}
	}
	for _, h := range get[[]api.Host](t, c.Registry.Caller(), "hosts", "host", "list") {
		if h.Protocol == 0 || len(h.Lacks) > 0 {
			t.Errorf("after the upgrade host %s speaks protocol %d and lacks %v", h.Name, h.Protocol, h.Lacks)
		}
	}
	for _, g := range guests {
		g.write(t, "vda")
		g.quiesce(t, "vda")
		root := g.root(t)
		if root.Location.Pool != otherPool {
			t.Errorf("volume %s is in pool %s", root.Name, root.Location.Pool)
		}
		assertHolds(t, disk{Volume: root}, root.Location, g.History("vda"))
	}
}

// copying is the name of a volume that is being copied for the drain, "" if none is.
func (c *cluster) copying(t *testing.T) string {
	t.Helper()
	for _, m := range get[[]api.Migration](t, c.Registry.Caller(), "migrations", "migration", "list") {
		if m.State == api.MigrationCopying && m.BytesDone > 0 {
			return m.VolumeName
		}
	}
	return ""
}

// A volferryctl works with programs of another version.
func TestUpgradeOfCtlAloneAndOfTheOthersAlone(t *testing.T) {
	leftToTestUpgrade(t)
	commit, programs := base(t)
	t.Run("newer volferryctl", func(t *testing.T) {
		c := startClusterOf(t, programs, "hv1")
		c.Hosts[0].Use(built(t))
		c.Registry.Use(built(t))
		for _, at := range []site.Caller{c.Hosts[0].Caller, c.Registry.Caller()} {
			if out := ctl(t, at, "version"); !strings.Contains(out, "older-"+commit[:12]) {
				t.Errorf("version does not name the version of the other side: %s", out)
			}
		}
		c.everydayWork(t)
	})
	t.Run("older volferryctl", func(t *testing.T) {
		c := startCluster(t, "hv1")
		c.Hosts[0].Use(programs)
		c.Registry.Use(programs)
		c.everydayWork(t)
	})
}

// everydayWork is what operators do at a host and at the registry.
func (c *cluster) everydayWork(t *testing.T) {
	t.Helper()
	g := c.guest(t, c.Hosts[0])
	g.write(t, "vda")
	ctl(t, c.Registry.Caller(), "type", "create", "clustered", "--multiattach")
	ctl(t, c.Registry.Caller(), "events")
	for i, at := range []site.Caller{c.Hosts[0].Caller, c.Registry.Caller()} {
		for _, list := range []string{"host", "pool", "type", "policy", "volume", "attachment", "instance"} {
			ctl(t, at, list, "list")
		}
		ctl(t, at, "status")
		name := fmt.Sprintf("made%d", i)
		ctl(t, at, "volume", "create", name, "--size", "1MiB", "--pool", localPool, "--type", "clustered")
		ctl(t, at, "volume", "attach", name, g.Name)
		ctl(t, at, "volume", "migrate", name, "--to-pool", otherPool)
		ctl(t, at, "volume", "detach", name, g.Name)
		ctl(t, at, "volume", "migrate", name, "--to-pool", localPool)
		ctl(t, at, "volume", "delete", name)
		ctl(t, at, "volume", "migrate", g.Name+"-vda", "--to-pool", []string{otherPool, localPool}[i])
		ctl(t, at, "instance", "show", g.Name)
		refuses(t, at, api.CodeNotFound, "volume", "show", "none")
	}
	g.quiesce(t, "vda")
	root := g.root(t)
	assertHolds(t, disk{Volume: root}, root.Location, g.History("vda"))
}

// An older registry continues with the database of a registry with the same schema. It leaves a
// database with a newer schema as it is, and continues with the backup that the newer registry
// made.
func TestUpgradeOfTheRegistryHasAWayBack(t *testing.T) {
	leftToTestUpgrade(t)
	commit, programs := base(t)
	grew, err := site.SchemaGrew(t.Context(), commit)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("from the registry of this tree", func(t *testing.T) {
		r := runRegistry(t, programs)
		ctl(t, r.Caller(), "type", "create", "before")
		r.Stop()
		r.Use(built(t))
		start(t, r)
		ctl(t, r.Caller(), "type", "show", "before")
		r.Stop()
		r.Use(programs)
		if grew {
			takeBackup(t, r)
		}
		start(t, r)
		ctl(t, r.Caller(), "type", "show", "before")
		ctl(t, r.Caller(), "type", "create", "after")
	})
	t.Run("from a newer schema", func(t *testing.T) {
		r := runRegistry(t, built(t))
		ctl(t, r.Caller(), "type", "create", "before")
		r.Stop()
		upgradeSchema(t, r)
		takeBackup(t, r)
		start(t, r)
		ctl(t, r.Caller(), "type", "show", "before")
		ctl(t, r.Caller(), "type", "create", "after")
	})
}

func runRegistry(t *testing.T, programs string) *site.Registry {
	t.Helper()
	r := site.NewRegistry(lab.TempDir(t), programs)
	t.Cleanup(r.Stop)
	start(t, r)
	return r
}

func start(t *testing.T, r *site.Registry) {
	t.Helper()
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// upgradeSchema makes the database of a stopped registry look as after the upgrade by a registry
// with a newer schema, which has made a backup.
func upgradeSchema(t *testing.T, r *site.Registry) {
	t.Helper()
	backup, err := r.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(backup, r.DB()+".schema-1"); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(r.DB(), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	// The user version in the header of a SQLite database (sqlite.org/fileformat2.html, 1.3.13).
	const userVersionAt = 60
	_, err = f.WriteAt(binary.BigEndian.AppendUint32(nil, 1000), userVersionAt)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// takeBackup claims that the registry refuses its database, which has a newer schema, and does not
// change it. Then it puts the backup of the upgrade in the place of the database.
func takeBackup(t *testing.T, r *site.Registry) {
	t.Helper()
	backups, err := filepath.Glob(r.DB() + ".schema-*")
	if err != nil || len(backups) != 1 {
		t.Fatalf("backups = %v (%v), want one", backups, err)
	}
	was := read(t, r.DB())
	if err := r.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "it was written by a newer Volferry") {
		t.Fatalf("an older registry started on the database of a newer one, or says something else: %v", err)
	}
	if !slices.Equal(was, read(t, r.DB())) {
		t.Error("the older registry has changed the database")
	}
	for _, file := range []string{r.DB() + "-wal", r.DB() + "-shm"} {
		if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	if err := os.Rename(backups[0], r.DB()); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
