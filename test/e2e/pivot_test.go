// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/crash"
	"github.com/volferry/volferry/test/lab"
)

// What libvirtd has noted of a guest when it dies beside the pivot of a block job. QEMU is told
// to pivot before any of that is in the guest's status file.
var pivotNotes = []struct {
	name string
	// text is in the status file, or, if unwritten, in what is about to be it.
	text      string
	unwritten bool
}{
	{"before it notes that the job ends", "state='pivoting'", true},
	{"when it has noted that the job ends", "state='pivoting'", false},
	{"before it notes that the job is over", "newstate='completed'", true},
	// It cannot read that when it comes back, and has lost the guest.
	{"when it has noted that the job is over", "newstate='completed'", false},
}

// noteTime is how long slowNotes makes libvirtd take before and after it puts a new status file in
// the place of the old one.
const noteTime = 700 * time.Millisecond

// TestLibvirtdThatDiesBesideAPivotCostsTheGuestNothing has libvirtd die around its own record of
// a pivot that QEMU has made. Whatever it believes then, the way out that Volferry names leads to
// the end, with every write that the guest was told is done.
func TestLibvirtdThatDiesBesideAPivotCostsTheGuestNothing(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	for name, begin := range map[string]func(*testing.T) []string{
		"complete": g.copyThenComplete,
		"cancel":   g.startThenCancel,
	} {
		t.Run(name, func(t *testing.T) {
			for i, note := range pivotNotes {
				t.Run(note.name, func(t *testing.T) { g.diesBesideAPivot(t, begin(t), i, nothingElse) })
			}
			t.Run("with the guest's process", func(t *testing.T) {
				g.diesBesideAPivot(t, begin(t), len(pivotNotes)-1, g.killQEMU)
			})
		})
	}
	g.assertSettled(t)
}

// diesBesideAPivot makes the last call of a migration, in which libvirtd dies with one of
// pivotNotes, and something along with it. It does what Volferry says until the migration is over.
func (g *guest) diesBesideAPivot(t *testing.T, args []string, note int, along func(*testing.T)) {
	t.Helper()
	h := g.host
	called := g.inBackground(t, args...)
	g.killLibvirtdAt(t, pivotNotes[note].text, pivotNotes[note].unwritten)
	along(t)
	if err := h.Libvirtd.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := <-called
	m := g.newestMigration(t)
	if err != nil {
		t.Logf("libvirt has the guest %s: %s", g.state(t), m.Error.Message)
		again := g.follows(t, m)
		end := m.Dst
		if args[1] == "cancel" {
			end = m.Src
		}
		g.assertHolds(t, "vda", end) // by itself, before anything is folded again
		if again {
			g.boot(t)
		}
		h.ctl(t, args...)
		eventually(t, "the instance may start again", func() bool { return h.chainPart(t).Status == "ok" })
		m = g.newestMigration(t)
	}
	if !m.State.Final() {
		t.Fatalf("the migration is %s: %+v", m.State, m.Error)
	}
	if g.state(t) == "shut off" {
		g.endedRight(t, m, "shut off")
		g.boot(t)
	}
	g.endedRight(t, m, "running")
}

func (g *guest) newestMigration(t *testing.T) api.Migration {
	t.Helper()
	return newestOf(get[[]api.Migration](t, g.host, "migrations", "migration", "list", "--all", "--instance", g.Name))
}

func newestOf(all []api.Migration) api.Migration {
	return slices.MaxFunc(all, func(a, b api.Migration) int { return a.StartedAt.Compare(*b.StartedAt) })
}

// killLibvirtdAt kills libvirtd when it has this text in its status of the guest, or is about to
// have it there.
func (g *guest) killLibvirtdAt(t *testing.T, text string, unwritten bool) {
	t.Helper()
	h := g.host
	status := filepath.Join(h.Libvirtd.RunDir, "qemu", g.Name+".xml")
	delay := strconv.FormatInt(noteTime.Microseconds(), 10)
	stop := lab.Inject(t, h.Libvirtd.PID(), "-P", fmt.Sprintf("/run/libvirt/qemu/%s.xml.new", g.Name), "-e", "trace=rename,renameat,renameat2",
		"-e", "inject=rename,renameat,renameat2:delay_enter="+delay+":delay_exit="+delay)
	defer stop()
	if unwritten {
		status += ".new"
	}
	eventually(t, "libvirtd notes "+text, func() bool {
		doc, err := os.ReadFile(status)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return strings.Contains(string(doc), text) && strings.HasSuffix(strings.TrimSpace(string(doc)), "</domstatus>")
	})
	if err := h.Libvirtd.Kill(); err != nil {
		t.Fatal(err)
	}
}

// follows ends a guest about which libvirt and the kernel disagree, as Volferry says. Nothing may
// name a chain as the good one before. follows reports whether the guest must be started again
// before the call is repeated.
func (g *guest) follows(t *testing.T, m api.Migration) (again bool) {
	t.Helper()
	h := g.host
	if m.State != api.MigrationNeedsOperator || m.Error == nil {
		t.Fatalf("the call failed, and the migration is %s", m.State)
	}
	mustContain(t, m.Error.Message, "by the kernel's word", m.ID)
	which, err := h.Ctl(t.Context(), "-o", "json", "volume", "which", g.volumeName("vda"))
	if err == nil {
		t.Error("which names a good chain")
	}
	mustContain(t, which, `"authoritative": null`, "by the kernel's word")
	if strings.Contains(m.Error.Message, "A guest that libvirt has lost") {
		g.isEndedByHand(t, m)
		return false
	}
	if strings.Contains(m.Error.Message, "must not be resumed") != (g.state(t) == "paused") {
		t.Errorf("the guest is %s, and the message says %s", g.state(t), m.Error.Message)
	}
	g.destroy(t)
	return strings.Contains(m.Error.Message, "start it again")
}

var (
	lostProcess  = regexp.MustCompile(`while process (\d+) goes on`)
	lostCommands = regexp.MustCompile("(?s)### A guest that libvirt has lost.*?```sh\n(.*?)```.*?```sh\n(.*?)```")
)

// isEndedByHand makes the commands of docs/how-to/recover.md for a guest that libvirt has lost.
func (g *guest) isEndedByHand(t *testing.T, m api.Migration) {
	t.Helper()
	pid := lostProcess.FindStringSubmatch(m.Error.Message)
	if pid == nil || pid[1] != strconv.Itoa(g.pid(t)) {
		t.Fatalf("the guest is process %d, and the message says %s", g.pid(t), m.Error.Message)
	}
	g.host.refuses(t, api.CodeChainChanged, "instance", "start", g.Name)
	if _, err := g.host.Libvirtd.Virsh(t.Context(), "destroy", g.Name); err == nil {
		t.Error("virsh can destroy the guest: the way out need not be so long")
	}
	steps := recoverCommands(t, lostCommands)
	named := strings.NewReplacer("PID", pid[1], " G\n", " "+g.Name+"\n", " G)", " "+g.Name+")", "SOURCE", m.Src.Path, "DESTINATION", m.Dst.Path)
	says := func(commands string) string {
		t.Helper()
		return g.host.types(t, t.TempDir(), named.Replace(commands))
	}
	looked := says(steps[1])
	if strings.Count(looked, g.UUID) != 2 || !strings.Contains(looked, m.Src.Path) && !strings.Contains(looked, m.Dst.Path) {
		t.Fatalf("the commands of recover.md do not show the guest's process:\n%s", looked)
	}
	says(steps[2])
	eventually(t, "the process is gone", func() bool { return !exists(t, "/proc/"+pid[1]) })
}
