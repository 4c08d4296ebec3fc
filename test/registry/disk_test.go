// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// smallDisk mounts an ext4 of a few MiB, with the database of a stopped registry
// on it.
func smallDisk(t *testing.T, c *cluster) (dir string) {
	t.Helper()
	image := filepath.Join(filepath.Dir(c.Dir), "disk.img")
	dir = filepath.Join(filepath.Dir(c.Dir), "disk")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(image, nil, 0o600), os.Truncate(image, 24<<20)); err != nil {
		t.Fatal(err)
	}
	//nolint:gosec // a path of our own
	if out, err := exec.CommandContext(t.Context(), "mkfs.ext4", "-q", "-F", "-m", "0", image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v\n%s", err, out)
	}
	loop, err := lab.LoopDevice(image)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := loop.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mount(loop.Path, dir, "ext4", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Stop()
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	there := filepath.Join(dir, filepath.Base(c.DB()))
	if err := errors.Join(os.WriteFile(there, must(os.ReadFile(c.DB()))(t), 0o600), os.Remove(c.DB()), os.Symlink(there, c.DB())); err != nil {
		t.Fatal(err)
	}
	return dir
}

// fill leaves no block of the file system of dir free, and returns what frees them.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f := must(os.Create(path))(t)
	for block := 1 << 20; block >= 1; block /= 2 {
		chunk := bytes.Repeat([]byte{1}, block)
		for {
			if _, err := f.Write(chunk); err != nil {
				break
			}
		}
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAFullDiskRefusesChangesAndDamagesNothing(t *testing.T) {
	if os.Getuid() != 0 {
		lab.SkipOrFail(t, "only root can mount a small disk")
	}
	c := newCluster(t, "a")
	h := c.hosts[0]
	c.Stop()
	disk := smallDisk(t, c)
	c.mustStart(t)
	c.mustIntroduce(t)
	free := fill(t, disk)
	told := changesUntil(t, c, h, true)
	// Every kind of caller is told, and may read.
	wantCode(t, refusal(c.operator.FenceHost(t.Context(), opID(), h.id, api.HostFence{Evidence: "the test", EvenIfUp: true})), api.CodeRegistryUnavailable, "nothing was changed")
	checkThere(t, c, told)

	// It dies and comes back on a full disk, or says why it does not.
	c.Kill()
	if err := c.Start(t.Context()); err != nil {
		if !strings.Contains(err.Error(), "full") {
			t.Errorf("start on a full disk: %v", err)
		}
		free()
		c.mustStart(t)
	} else {
		checkThere(t, c, told)
		free()
	}
	// The next request tries again, without a restart.
	c.mustIntroduce(t)
	more := changesUntil(t, c, h, false)
	if len(more) == 0 {
		t.Error("no change was taken when there was space again")
	}
	checkThere(t, c, append(told, more...))
	c.Kill()
	c.mustStart(t)
	checkThere(t, c, append(told, more...))
	c.checkInvariants(t)
}

// changesUntil registers volumes until that is refused for want of space, or some
// hundred times, and returns those that were acknowledged.
func changesUntil(t *testing.T, c *cluster, h *host, full bool) (told []string) {
	t.Helper()
	r := c.of(t, h)
	for n := range 20_000 {
		if !full && n == 200 {
			return told
		}
		id := uuid.NewString()
		_, err := r.RegisterVolume(t.Context(), id, api.VolumeRegister{
			ID: id, Name: "v-" + id, Status: api.VolumeAvailable, Type: oneType, Host: h.id, Location: placeOf(id),
		})
		switch {
		case err == nil:
			told = append(told, id)
		case full:
			wantCode(t, err, api.CodeRegistryUnavailable, "nothing was changed")
			if api.AsError(err).Details["maybe_done"] != nil || !strings.Contains(err.Error(), "full") {
				t.Errorf("the refusal does not say that the disk is full: %v", err)
			}
			return told
		default:
			t.Fatal(err)
		}
	}
	t.Fatal("the disk was never full")
	return nil
}

// checkThere reads back what was acknowledged, and nothing else.
func checkThere(t *testing.T, c *cluster, told []string) {
	t.Helper()
	there := map[string]bool{}
	for _, v := range reads(t, c.local.Volumes) {
		there[v.ID] = true
	}
	for _, id := range told {
		if !there[id] {
			t.Errorf("volume %s was acknowledged and is not there", id)
		}
	}
	if len(there) != len(told) {
		t.Errorf("%d volumes are there and %d were acknowledged", len(there), len(told))
	}
}

func TestADamagedDatabaseIsNotStartedAndLeftAsItIs(t *testing.T) {
	c := newCluster(t, "a")
	for range 200 {
		c.volume(t, c.hosts[0], oneType)
	}
	c.Stop()
	whole := must(os.ReadFile(c.DB()))(t)
	for name, damage := range map[string]func([]byte) []byte{
		"a page in the middle": func(b []byte) []byte {
			copy(b[len(b)/2&^4095:], bytes.Repeat([]byte{0xA5}, 3*4096))
			return b
		},
		"the end is missing": func(b []byte) []byte { return b[:len(b)/2] },
		"no database":        func([]byte) []byte { return []byte(strings.Repeat("this is a letter. ", 1000)) },
	} {
		t.Run(name, func(t *testing.T) {
			damaged := damage(bytes.Clone(whole))
			if err := os.WriteFile(c.DB(), damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			err := c.Start(t.Context())
			if err == nil {
				c.Stop()
				t.Fatal("it was started")
			}
			for _, text := range []string{"exit status 1", c.DB(), "restore a backup"} {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("it does not say %q: %v", text, err)
				}
			}
			if !bytes.Equal(must(os.ReadFile(c.DB()))(t), damaged) {
				t.Error("the damaged file was written to")
			}
			for _, command := range [][]string{{"backup", filepath.Join(c.Dir, "copy")}, {"accept-restore", "--evidence", "none"}} {
				out, err := c.Run(t.Context(), append(command, "--config", c.config(t), "--db", c.DB())...)
				if err == nil || !strings.Contains(err.Error(), "exit status 1") {
					t.Errorf("%s: %v\n%s", command[0], err, out)
				}
			}
			if _, err := os.Stat(filepath.Join(c.Dir, "copy")); err == nil {
				t.Error("a backup of a damaged database was made")
			}
		})
	}
	if err := os.WriteFile(c.DB(), whole, 0o600); err != nil {
		t.Fatal(err)
	}
	c.mustStart(t)
	c.checkInvariants(t)
}

// What was changed in the audit trail behind the registry's back is no reason to
// keep the hosts waiting, and is said at the next start.
func TestAnAuditTrailThatWasTamperedWithIsSaid(t *testing.T) {
	c := newCluster(t, "a")
	v := c.volume(t, c.hosts[0], oneType)
	c.Stop()
	b := must(os.ReadFile(c.DB()))(t)
	at := bytes.LastIndex(b, []byte("volume.register"))
	if at < 0 {
		t.Fatal("the database has no event of the registration")
	}
	copy(b[at:], "volume.registeX")
	if err := os.WriteFile(c.DB(), b, 0o600); err != nil {
		t.Fatal(err)
	}
	c.mustStart(t)
	tampered := func(p api.Check) bool {
		return p.Name == "audit trail" && p.Status == "fail" && strings.Contains(p.Message, "was changed at or before event")
	}
	for !slices.ContainsFunc(reads(t, c.operator.Status).Parts, tampered) {
		if err := pause(t.Context(), 10*time.Millisecond); err != nil {
			t.Fatal("status does not say it")
		}
	}
	if log := string(must(os.ReadFile(c.Log()))(t)); !strings.Contains(log, "the audit trail is not what was written") {
		t.Error("the log does not say it")
	}
	reads(t, func(ctx context.Context) (api.Volume, error) { return c.operator.Volume(ctx, v.ID) })
}
