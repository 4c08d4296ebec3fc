// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const hookSource = "../../../packaging/libvirt-hook/volferry-guard"

// hook is the shipped hook with its two paths in a test directory, as an administrator would edit
// it for another state directory.
type hook struct{ path, guardDirFile string }

func newHook(t *testing.T, guardDir string) hook {
	t.Helper()
	text, err := os.ReadFile(hookSource)
	if err != nil {
		t.Fatal(err)
	}
	h := hook{
		path:         filepath.Join(t.TempDir(), "volferry-guard"),
		guardDirFile: filepath.Join(t.TempDir(), "guard-dir"),
	}
	for old, replacement := range map[string]string{
		"\nGUARD_DIR=/var/lib/volferry/guards\n":     "\nGUARD_DIR='" + guardDir + "'\n",
		"\nGUARD_DIR_FILE=/etc/volferry/guard-dir\n": "\nGUARD_DIR_FILE='" + h.guardDirFile + "'\n",
	} {
		if !bytes.Contains(text, []byte(old)) {
			t.Fatalf("the hook has no line %q", strings.TrimSpace(old))
		}
		text = bytes.Replace(text, []byte(old), []byte(replacement), 1)
	}
	if err := os.WriteFile(h.path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

// run runs the hook like libvirt and returns its exit status and its stderr.
func (h hook) run(t *testing.T, xml string, args ...string) (int, string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", append([]string{h.path}, args...)...)
	cmd.Stdin = strings.NewReader(xml)
	cmd.Env = []string{}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if stdout.Len() > 0 {
		t.Errorf("the hook wrote to stdout: %q", stdout.String())
	}
	return cmd.ProcessState.ExitCode(), stderr.String()
}

// start asks the hook whether the domain in xml may start.
func (h hook) start(t *testing.T, xml string) (int, string) {
	t.Helper()
	return h.run(t, xml, "guest", "prepare", "begin", "-")
}

func domainXML(id string) string {
	return "<domain type='kvm'>\n  <name>guest</name>\n  <uuid>" + id + "</uuid>\n</domain>\n"
}

func TestHookRefusesAGuardedStartAndSaysWhy(t *testing.T) {
	g := newGuards(t)
	h := newHook(t, g.dir)
	mustSet(t, g, domainA, "volume data is being moved; wait for migration 12 to end")

	code, text := h.start(t, domainXML(domainA))
	if code != 1 || text != "volferry: volume data is being moved; wait for migration 12 to end [test]\n" {
		t.Errorf("guarded start: exit %d, %q", code, text)
	}
	if code, text := h.start(t, domainXML(domainB)); code != 0 || text != "" {
		t.Errorf("start of another domain: exit %d, %q", code, text)
	}
	if err := g.Clear(domainA, testOwner); err != nil {
		t.Fatal(err)
	}
	if code, text := h.start(t, domainXML(domainA)); code != 0 || text != "" {
		t.Errorf("start after Clear: exit %d, %q", code, text)
	}
}

// A hook that fails "reconnect" kills a running guest, and a hook that fails "migrate" or "restore"
// aborts it.
func TestHookLetsEveryOtherOperationPass(t *testing.T) {
	g := newGuards(t)
	h := newHook(t, g.dir)
	mustSet(t, g, domainA, "reason")
	for _, args := range [][]string{
		{"guest", "reconnect", "begin", "-"},
		{"guest", "attach", "begin", "-"},
		{"guest", "start", "begin", "-"},
		{"guest", "started", "begin", "-"},
		{"guest", "stopped", "end", "-"},
		{"guest", "release", "end", "-"},
		{"guest", "migrate", "begin", "-"},
		{"guest", "restore", "begin", "-"},
		{"guest", "prepare", "end", "-"},
		{"prepare", "begin"},
		{},
	} {
		if code, text := h.run(t, domainXML(domainA), args...); code != 0 || text != "" {
			t.Errorf("%v: exit %d, %q", args, code, text)
		}
	}
}

func TestHookCountsOnlyTheDomainsOwnUUID(t *testing.T) {
	g := newGuards(t)
	h := newHook(t, g.dir)
	mustSet(t, g, domainA, "reason")
	own := func(id string) string { return "<uuid>" + id + "</uuid>" }

	for name, before := range map[string]string{
		"nested in title":    "<title>" + own(domainB) + "</title>",
		"escaped in title":   "<title>&lt;uuid&gt;" + domainB + "&lt;/uuid&gt;</title>",
		"in a name":          "<name>x &lt;/name&gt;" + domainB + " * ? $(exit 0) `exit 0` '\"</name>",
		"in a comment":       "<!-- <a> " + own(domainB) + " -->",
		"in CDATA":           "<description><![CDATA[</description>" + own(domainB) + "]]></description>",
		"nested in metadata": "<metadata><x:m xmlns:x='urn:x'>\n" + own(domainB) + "<y/></x:m></metadata>",
		"over several lines": "<description>one\ntwo <b>" + own(domainB) + "\n</b>\n</description>\n<clock offset='utc'/>",
		"other element":      "<uuidx>" + domainB + "</uuidx>",
	} {
		xml := "<?xml version='1.0'?>\n<domain type='kvm' id='3'>\n  " + before + "\n  " + own(domainA) + "\n</domain>\n"
		if code, text := h.start(t, xml); code != 1 {
			t.Errorf("%s: a guarded domain was let go: exit %d, %q", name, code, text)
		}
		xml = strings.NewReplacer(domainA, domainB, domainB, domainA).Replace(xml)
		if code, text := h.start(t, xml); code != 0 {
			t.Errorf("%s: a free domain was taken for the guarded one: exit %d, %q", name, code, text)
		}
	}
}

func TestHookRefusesWhenTheGuardCannotBeRead(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"directory":       func(path string) error { return os.MkdirAll(path, 0o700) },
		"dangling link":   func(path string) error { return os.Symlink("/nonexistent/guard", path) },
		"empty file":      func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"without newline": func(path string) error { return os.WriteFile(path, []byte("why"), 0o600) },
	} {
		dir := t.TempDir()
		if err := make(filepath.Join(dir, domainA)); err != nil {
			t.Fatal(err)
		}
		code, text := newHook(t, dir).start(t, domainXML(domainA))
		if code != 1 || !strings.HasPrefix(text, "volferry: ") || len(text) < len("volferry: why\n") {
			t.Errorf("%s: exit %d, %q", name, code, text)
		}
	}
}

// A bug of the hook or strange input must not prevent all starts of a host's guests.
func TestHookLetsGoWhatItCannotRead(t *testing.T) {
	g := newGuards(t)
	h := newHook(t, g.dir)
	mustSet(t, g, domainA, "reason")
	if err := os.WriteFile(filepath.Join(g.dir, "..", domainA), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, xml := range []string{
		"", "\n", "not XML", "<", "<domain>", "<domain><uuid>", "<domain><uuid></uuid></domain>",
		"<domain><uuid>../" + domainA + "</uuid></domain>", "<domain><!-- " + domainXML(domainA),
		domainXML("* ? [a-z]*"),
	} {
		if code, text := h.start(t, xml); code != 0 || text != "" {
			t.Errorf("%q: exit %d, %q", xml, code, text)
		}
	}
}

func TestGuardDirFileReplacesTheDirectoryOfTheHook(t *testing.T) {
	g, first, second := newGuards(t), newGuards(t), newGuards(t)
	h := newHook(t, g.dir)
	if err := os.WriteFile(h.guardDirFile, []byte(first.dir+"\n\n"+second.dir), 0o600); err != nil {
		t.Fatal(err)
	}
	mustSet(t, g, domainA, "not looked at")
	if code, text := h.start(t, domainXML(domainA)); code != 0 {
		t.Errorf("guard in the replaced directory: exit %d, %q", code, text)
	}
	for _, other := range []*Dir{first, second} {
		mustSet(t, other, domainA, "reason")
		if code, text := h.start(t, domainXML(domainA)); code != 1 {
			t.Errorf("guard in %s: exit %d, %q", other.dir, code, text)
		}
		if err := other.Clear(domainA, testOwner); err != nil {
			t.Fatal(err)
		}
	}
}

// libvirtd waits for the hook when it starts a guest. The XML has many disks and its uuid last;
// libvirt puts it second.
func TestHookAnswersWithin50ms(t *testing.T) {
	g := newGuards(t)
	h := newHook(t, g.dir)
	mustSet(t, g, domainA, "reason")
	mustIssueToken(t, g)
	disk := "<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='/var/lib/libvirt/images/a.img'/></disk>\n"
	xml := "<domain>\n<devices>" + strings.Repeat(disk, 50) + "</devices>\n<uuid>" + domainA + "</uuid></domain>"

	took := make([]time.Duration, 0, 21)
	for range cap(took) {
		begin := time.Now()
		if code, text := h.start(t, xml); code != 1 {
			t.Fatalf("exit %d, %q", code, text)
		}
		took = append(took, time.Since(begin))
	}
	// The load of other programs is not the hook's cost.
	if fastest := slices.Min(took); fastest > 50*time.Millisecond {
		t.Errorf("the fastest of %d calls took %v", len(took), fastest)
	}
}
