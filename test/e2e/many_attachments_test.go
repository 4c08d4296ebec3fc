// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// What there is on a host with a thousand attachments.
const (
	manyInstances    = 50
	disksOfEach      = 20
	manyMigrations   = 20
	reconciledWithin = 5 * time.Second
)

// adoptWithDisks makes an instance with so many small disks in pool a, and returns its name.
func (h *host) adoptWithDisks(t *testing.T, disks int) string {
	t.Helper()
	name := fmt.Sprintf("many%d", h.number())
	var files []string
	for i := range disks {
		file := filepath.Join(h.poolA, name+"-"+target(i))
		if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	if err := h.Libvirtd.DefineWithDisks(t.Context(), name, files...); err != nil {
		t.Fatal(err)
	}
	h.ctl(t, "instance", "adopt", name)
	return name
}

// TestAThousandAttachmentsAreTakenUpInFiveSeconds: a daemon that was killed says that it is ready,
// with libvirt, the registry and what was open, within five seconds of its start on a host that has
// a thousand attachments and twenty open migrations.
func TestAThousandAttachmentsAreTakenUpInFiveSeconds(t *testing.T) {
	leftToTestE2E(t)
	lab.Require(t) // and nothing beside it: time is what it is about
	h := startHostIn(t, tempDirOf(t))
	h.Metrics = freeAddress(t)
	var names, migrations []string
	for range manyInstances {
		names = append(names, h.adoptWithDisks(t, disksOfEach))
	}
	if got := len(get[[]api.Attachment](t, h, "attachments", "attachment", "list")); got != manyInstances*disksOfEach {
		t.Fatalf("%d attachments, want %d", got, manyInstances*disksOfEach)
	}
	for _, name := range names[:manyMigrations] {
		attachments := get[[]api.Attachment](t, h, "attachments", "attachment", "list", "--instance", name)
		m := get[api.Migration](t, h, "migration", "migration", "start", attachments[0].ID, "--to-pool", "b")
		migrations = append(migrations, m.ID)
	}

	h.KillDaemon()
	begin := time.Now()
	if err := h.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	answers := time.Since(begin)
	if err := h.UntilReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	took := time.Since(begin)
	t.Logf("it answers after %v, and is ready after %v", answers.Round(time.Millisecond), took.Round(time.Millisecond))
	if took > reconciledWithin {
		t.Errorf("ready after %v, want at most %v", took, reconciledWithin)
	}

	for _, id := range migrations {
		if m := get[api.Migration](t, h, "migration", "migration", "show", id); m.State != api.MigrationStarted {
			t.Errorf("migration %s is %s", id, m.State)
		}
		h.ctl(t, "migration", "cancel", id)
	}
	for _, name := range names {
		h.ctl(t, "instance", "forget", name, "--with-definition", "--force")
	}
}
