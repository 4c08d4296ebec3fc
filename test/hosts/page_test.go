// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/test/machine"
	"github.com/volferry/volferry/test/site"
)

// page is a page of the documentation that a test follows.
type page struct {
	*site.Reader

	path   string
	blocks []site.Block
	done   []bool // of each block
}

func openPage(t *testing.T, path string, r *site.Reader) *page {
	t.Helper()
	blocks, err := site.ReadPage(path)
	if err != nil {
		t.Fatal(err)
	}
	return &page{Reader: r, path: path, blocks: blocks, done: make([]bool, len(blocks))}
}

// section is the blocks of a section, which the page must have.
func (p *page) section(t *testing.T, heading string) []site.Block {
	t.Helper()
	var blocks []site.Block
	for i, b := range p.blocks {
		if b.Heading == heading {
			blocks = append(blocks, b)
			p.done[i] = true
		}
	}
	if len(blocks) == 0 {
		t.Fatalf("the page has no section %q with commands", heading)
	}
	return blocks
}

// follow does what a section says.
func (p *page) follow(t *testing.T, heading string) {
	t.Helper()
	for _, b := range p.section(t, heading) {
		if err := p.Do(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
}

// next is the first block that was not done yet, whose text must begin so.
func (p *page) next(t *testing.T, begins string) site.Block {
	t.Helper()
	for i, b := range p.blocks {
		if p.done[i] {
			continue
		}
		if !strings.HasPrefix(b.Text, begins) {
			t.Fatalf("%s, section %q: the next block is\n%s\nand not %s…", p.path, b.Heading, b.Text, begins)
		}
		p.done[i] = true
		return b
	}
	t.Fatalf("%s: no block is left, want %s…", p.path, begins)
	return site.Block{}
}

// does runs the next blocks, whose texts must begin so.
func (p *page) does(t *testing.T, begins ...string) {
	t.Helper()
	for _, begin := range begins {
		b := p.next(t, begin)
		if b.Language != site.Shell {
			t.Fatalf("%s, section %q: these are no commands:\n%s", p.path, b.Heading, b.Text)
		}
		if err := p.Do(t.Context(), b); err != nil {
			t.Fatalf("%s: %v", p.path, err)
		}
		t.Logf("%s: followed\n%s", p.path, b.Text)
	}
}

// leaves passes over the next block, which cannot be run here.
func (p *page) leaves(t *testing.T, begins, why string) {
	t.Helper()
	t.Logf("%s: NOT RUN, %s:\n%s", p.path, why, p.next(t, begins).Text)
}

// assertAllDone claims that there is no block on the page that was not followed.
func (p *page) assertAllDone(t *testing.T) {
	t.Helper()
	for i, b := range p.blocks {
		if !p.done[i] {
			t.Errorf("%s, section %q was not followed: %s", p.path, b.Heading, b.Text)
		}
	}
}

// shellIn is a shell in a machine. It begins in a directory, and what a command exports
// is there for those after it.
func shellIn(m *machine.Machine, dir string) func(context.Context, string) (string, string, error) {
	return func(ctx context.Context, line string) (string, string, error) {
		const keep = `mkdir -p "$1"; cd "$1" || exit; touch /run/exported; . /run/exported; eval "$2"; status=$?; export -p >/run/exported; exit $status`
		var stdout, stderr bytes.Buffer
		cmd := m.Command(ctx, "bash", "-c", keep, "bash", dir, line)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		if err != nil {
			err = &machine.ExecError{Machine: m.Name, Args: []string{line}, Exit: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
		}
		return stdout.String(), stderr.String(), err
	}
}

// followers are the tests that follow the pages which have commands.
var followers = map[string]string{
	"docs/tutorial/first-move.md":                      "TestTutorialWordForWord",
	"docs/how-to/install.md":                           "TestTutorialWordForWord",
	"docs/how-to/attach-and-share.md":                  "TestHowTosWordForWord",
	"docs/how-to/back-up-the-registry.md":              "TestHowTosWordForWord",
	"docs/how-to/change-a-boot-volume.md":              "TestHowTosWordForWord",
	"docs/how-to/check-a-host.md":                      "TestHowTosWordForWord",
	"docs/how-to/empty-a-pool.md":                      "TestHowTosWordForWord",
	"docs/how-to/external-copy.md":                     "TestHowTosWordForWord",
	"docs/how-to/linked-clones.md":                     "TestHowTosWordForWord",
	"docs/how-to/lose-a-host.md":                       "TestHowTosWordForWord",
	"docs/how-to/monitoring.md":                        "TestHowTosWordForWord",
	"docs/how-to/move-a-running-guest.md":              "TestHowTosWordForWord",
	"docs/how-to/move-a-shared-volume.md":              "TestHowTosWordForWord",
	"docs/how-to/recover.md":                           "TestHowTosWordForWord",
	"docs/how-to/reinstall-a-host.md":                  "TestHostThatWasInstalledAgainComesBackAsThePageSays",
	"docs/how-to/replace-an-array.md":                  "TestHowTosWordForWord",
	"docs/how-to/replicate-the-registry.md":            "TestWhatLitestreamRestoresMeetsHostsThatKnowMore",
	"docs/how-to/resize-a-volume.md":                   "TestHowTosWordForWord",
	"docs/how-to/run-the-registry-highly-available.md": "TestRegistryStartsAndStopsWithItsFilesystemAsThePageSays",
	"docs/how-to/several-hosts.md":                     "TestHowTosWordForWord",
	"docs/how-to/shelve.md":                            "TestHowTosWordForWord",
	"docs/how-to/use-a-connector.md":                   "TestStorageAThinPoolIsAPoolAsThePageSays",
	"docs/how-to/upgrade.md":                           "TestHowTosWordForWord",
	"docs/how-to/watch-in-a-browser.md":                "TestHowTosWordForWord",
	"docs/how-to/disaster-recovery.md":                 "TestSiteTakesOverAsThePageSays",
}

// Whoever adds a page has it followed.
func TestEveryPageWithCommandsIsFollowed(t *testing.T) {
	root, err := site.Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"docs/tutorial", "docs/how-to"} {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.md"))
		if err != nil || len(files) == 0 {
			t.Fatalf("pages in %s: %v, %v", dir, files, err)
		}
		for _, file := range files {
			path := filepath.Join(dir, filepath.Base(file))
			blocks, err := site.ReadPage(path)
			if err != nil {
				t.Fatal(err)
			}
			if len(blocks) > 0 && followers[path] == "" {
				t.Errorf("no test follows the commands of %s", path)
			}
		}
	}
	for path, test := range followers {
		if !declared(t, test, path) {
			t.Errorf("no file of test/hosts, test/e2e or test/registry has both %s and the path %s", test, path)
		}
	}
}

// declared reports whether a file of this package, or of package e2e or registry, has a test and
// the path of the page that it follows.
func declared(t *testing.T, test, path string) bool {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	inMachine, err2 := filepath.Glob("../e2e/*_test.go")
	alone, err3 := filepath.Glob("../registry/*_test.go")
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	for _, file := range slices.Concat(files, inMachine, alone) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "func "+test+"(") && strings.Contains(string(text), `"`+path+`"`) {
			return true
		}
	}
	return false
}
