// SPDX-License-Identifier: Apache-2.0

package site

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// clone is a repository of a test.
type clone struct {
	t    *testing.T
	root string
}

func newClone(t *testing.T) *clone {
	t.Helper()
	c := &clone{t, t.TempDir()}
	c.git("init", "-q")
	return c
}

func (c *clone) git(args ...string) string {
	c.t.Helper()
	args = append([]string{"-C", c.root, "-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"}, args...)
	out, err := exec.CommandContext(c.t.Context(), "git", args...).CombinedOutput()
	if err != nil {
		c.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// commit writes a file and returns the commit of it.
func (c *clone) commit(name, text string) string {
	c.t.Helper()
	path := filepath.Join(c.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	c.git("add", name)
	c.git("commit", "-q", "-m", "write "+name)
	return c.git("rev-parse", "HEAD")
}

func (c *clone) wantBase(want string) {
	c.t.Helper()
	if got, err := baseIn(c.t.Context(), c.root); err != nil || got != want {
		c.t.Errorf("the base is %q (%v), want %s", got, err, want)
	}
}

func TestUpgradesBeginWithTheLastBreakUntilTheFirstRelease(t *testing.T) {
	c := newClone(t)
	c.commit("VERSION", "0.1.0-dev\n")
	if got, err := baseIn(t.Context(), c.root); err == nil {
		t.Errorf("without the file the base is %s", got)
	}
	c.commit(compatibleFile, "one\n")
	last := c.commit(compatibleFile, "one\ntwo\n")
	c.commit("other", "x\n")
	c.wantBase(last)
	release := c.commit("VERSION", "0.1.0\n")
	c.wantBase(release)
	c.commit("VERSION", "0.2.0-dev\n")
	c.commit(compatibleFile, "one\ntwo\nthree\n")
	c.commit("VERSION", "0.1.0.1\n")
	c.wantBase(release)
}

func TestAShallowCloneHasNoBase(t *testing.T) {
	c := newClone(t)
	c.commit(compatibleFile, "one\n")
	c.commit("other", "x\n")
	shallow := filepath.Join(t.TempDir(), "shallow")
	c.git("clone", "-q", "--depth", "1", "file://"+c.root, shallow)
	if got, err := baseIn(t.Context(), shallow); err == nil || !strings.Contains(err.Error(), "--unshallow") {
		t.Errorf("the base is %q (%v), want an error with the way out", got, err)
	}
}

func TestTheSchemaGrowsWithItsFiles(t *testing.T) {
	c := newClone(t)
	first := c.commit(schemaDir+"/1.sql", "x\n")
	want := func(grew bool) {
		t.Helper()
		if got, err := schemaGrewIn(t.Context(), c.root, first); err != nil || got != grew {
			t.Errorf("it grew: %t (%v), want %t", got, err, grew)
		}
	}
	c.commit(schemaDir+"/schema.go", "x\n")
	want(false)
	c.commit(schemaDir+"/2.sql", "x\n")
	want(true)
}

// The clone that has this test has a base, unless it is shallow or no clone.
func TestThisTreeHasABase(t *testing.T) {
	ctx := t.Context()
	if shallow, err := git(ctx, "rev-parse", "--is-shallow-repository"); err != nil || strings.TrimSpace(shallow) == "true" {
		t.Skipf("SKIPPED: this is no clone with its history (%v)", err)
	}
	base, err := Base(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := git(ctx, "merge-base", "--is-ancestor", base, "HEAD"); err != nil {
		t.Errorf("the base is no commit before this one: %v", err)
	}
}
