// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/lab/workload"
	"github.com/volferry/volferry/test/site"
)

// What the guest is like.
const (
	guestName   = "demo"
	disk        = "vda"
	volumeName  = guestName + "-" + disk
	serial      = "demo-disk"
	volumeBytes = 2 << 30
	fillPercent = 30
	poolMiB     = 4 << 10
)

// load is what the guest does all the time. At this pace a stall shows in
// milliseconds, and a guest without hardware virtualisation can keep it.
var load = lab.Load{Interval: 2 * time.Millisecond, Depth: 4}

// mix is what it does: mostly small writes, as a database would.
var mix = workload.Mix{Large: 10, Zero: 3, Discard: 3, Flush: 10}

// stage is everything that the scenarios play on.
type stage struct {
	*narrator
	dir   string
	site  *site.Site
	pools []*lab.FS
	guest *lab.Guest
}

// setUp makes the stage. It is to be closed even where there is an error.
func setUp(ctx context.Context, n *narrator) (*stage, error) {
	s := &stage{narrator: n}
	n.heading("A host with two pools and a guest")
	dir, err := os.MkdirTemp(base(), dirPrefix)
	if err != nil {
		return s, err
	}
	s.dir = dir
	// What the tools make for a moment is removed with the rest.
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "tmp"), 0o700), os.Setenv("TMPDIR", filepath.Join(dir, "tmp"))); err != nil {
		return s, err
	}
	root, err := site.Root()
	if err != nil {
		return s, err
	}
	n.say("Starting libvirtd, volferry-registry and volferryd, all private to this demo,")
	n.say("in %s.", dir)
	if s.site, err = site.Start(ctx, dir, filepath.Join(root, "bin")); err != nil {
		return s, err
	}
	n.say("Making pool 'old' (ext4) and pool 'new' (XFS), each a file system of its own.")
	if err := errors.Join(s.addPool(ctx, "old", "ext4"), s.addPool(ctx, "new", "xfs")); err != nil {
		return s, err
	}
	return s, s.bootGuest(ctx)
}

func (s *stage) addPool(ctx context.Context, name, fstype string) error {
	fs, err := lab.LoopFS(ctx, filepath.Join(s.site.Libvirtd.Dir, name), fstype, poolMiB)
	if err != nil {
		return err
	}
	s.pools = append(s.pools, fs)
	return s.site.Libvirtd.DirPool(ctx, name, fs.Dir)
}

// bootGuest makes a volume in the old pool and a guest that writes to it.
func (s *stage) bootGuest(ctx context.Context) error {
	s.say("Making a raw volume of %s in pool 'old', %d %% of it filled with known data.", bytes(volumeBytes), fillPercent)
	d := lab.Disk{
		Volume: lab.Volume{Path: filepath.Join(s.pools[0].Dir, "disk.raw"), Format: "raw"},
		Fill:   lab.Fill{Seed: 1, Percent: fillPercent}, Seed: 1, Serial: serial, Mix: mix,
	}
	if err := lab.MakeVolume(ctx, d.Volume, volumeBytes, d.Fill); err != nil {
		return err
	}
	if _, err := s.site.Libvirtd.Virsh(ctx, "pool-refresh", "old"); err != nil {
		return err
	}
	s.say("Booting guest '%s' (Linux under QEMU). From now on it writes to the volume all", guestName)
	s.say("the time: 4 to 256 KiB, zeroes and discards, and a flush now and then. It")
	s.say("reports each operation that its disk has acknowledged.")
	var err error
	if s.guest, err = s.site.Libvirtd.DefineGuest(ctx, lab.GuestConfig{Name: guestName, Disks: []lab.Disk{d}}); err != nil {
		return err
	}
	if err := s.guest.Write(disk, load); err != nil {
		return err
	}
	if err := s.guest.Start(ctx); err != nil {
		return err
	}
	return s.guest.WaitWriting(ctx, disk, 100)
}

// ctl runs volferryctl before the audience.
func (s *stage) ctl(ctx context.Context, args ...string) error {
	s.prompt(args)
	return s.site.CtlTo(ctx, s.out, args...)
}

// volume is the volume as Volferry has it.
func (s *stage) volume(ctx context.Context) (api.Volume, error) {
	return site.Get[api.Volume](ctx, s.site.Caller, "volume", "volume", "show", volumeName)
}

// lastMigration is the migration that was asked for last.
func (s *stage) lastMigration(ctx context.Context) (api.Migration, error) {
	all, err := site.Get[[]api.Migration](ctx, s.site.Caller, "migrations", "migration", "list", "--all")
	if err != nil {
		return api.Migration{}, err
	}
	if len(all) == 0 {
		return api.Migration{}, errors.New("there is no migration")
	}
	return slices.MaxFunc(all, func(a, b api.Migration) int { return a.StartedAt.Compare(*b.StartedAt) }), nil
}

// nothingLeft finds fault with anything that a migration must not leave.
func (s *stage) nothingLeft(ctx context.Context) error {
	left, err := s.site.Libvirtd.Leftovers(ctx, s.site.Overlays(), s.site.Guards())
	if err == nil && len(left) > 0 {
		err = errors.New("the migrations left behind: " + strings.Join(left, "; "))
	}
	return err
}

// logs are the ends of the logs, for a demo that failed.
func (s *stage) logs() string {
	if s.site == nil {
		return ""
	}
	return "\n" + s.site.Logs()
}

// close removes everything. It works on a stage that is not complete, too.
func (s *stage) close() error {
	var errs []error
	if s.guest != nil {
		errs = append(errs, s.guest.Close())
	}
	// The daemon may be copying from one pool to the other.
	if s.site != nil {
		errs = append(errs, s.site.Close())
	}
	for _, fs := range s.pools {
		errs = append(errs, fs.Close())
	}
	if s.dir != "" {
		left, err := lab.Remains(s.dir)
		if len(left) > 0 {
			err = fmt.Errorf("left behind: %s", strings.Join(left, ", "))
		}
		errs = append(errs, err, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

// bytes is a size as a person says it.
func bytes(n int64) string { return fmt.Sprintf("%.3g GiB", float64(n)/(1<<30)) }
