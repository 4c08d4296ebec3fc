// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// qemuImg runs qemu-img as an operator does.
func qemuImg(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "qemu-img", args...).CombinedOutput(); err != nil {
		t.Fatalf("qemu-img %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// over makes a linked clone of an image, with its own content.
func over(t *testing.T, backing Image, name string, patterns ...string) Image {
	t.Helper()
	clone := Image{Path: filepath.Join(t.TempDir(), name), Format: FormatQCOW2, Backing: &backing}
	qemuImg(t, "create", "-q", "-f", "qcow2", "-F", backing.Format, "-b", backing.Path, clone.Path)
	guestWrites(t, clone, patterns...)
	return clone
}

// clones makes a chain of three: a raw image, its clone, and the clone's clone.
func clones(t *testing.T) Image {
	t.Helper()
	base := newImage(t, "b,ase", FormatRaw)
	guestWrites(t, base, basePatterns...)
	return over(t, over(t, base, "middle", "write -P 0x31 8M 1M"), "top", overlayPatterns...)
}

func TestALinkedCloneIsServedWithWhatIsBelowIt(t *testing.T) {
	top := clones(t)
	if !bytes.Equal(servedContent(t, top), content(t, top)) {
		t.Error("what is served has other bytes")
	}
}

// A header may change after the check: so the end of the chain is explicit.
func TestANodeOfQcow2NamesWhatIsBelowOrThatNothingIs(t *testing.T) {
	top, err := open(clones(t), os.O_RDONLY)
	must(t, err)
	defer top.close()
	layers := 0
	for node := top.node(0); node != nil; layers++ {
		file, _ := node["file"].(map[string]any)
		if node["driver"] == nil || file["driver"] == nil || file["filename"] == nil || layers > 0 && node["read-only"] != true {
			t.Errorf("layer %d is %v", layers, node)
		}
		below, said := node["backing"].(map[string]any)
		if _, named := node["backing"]; !said && node["driver"] == FormatQCOW2 && !named {
			t.Errorf("layer %d leaves it open what is below: %v", layers, node)
		}
		node = below
	}
	if layers != 3 {
		t.Errorf("%d layers", layers)
	}
}

func TestAFoldIntoALinkedCloneWritesItsTopOnly(t *testing.T) {
	top := clones(t)
	below := [][]byte{read(t, top.Backing.Path), read(t, top.Backing.Backing.Path)}
	overlay := Image{Path: filepath.Join(t.TempDir(), "overlay"), Format: FormatQCOW2}
	if err := CreateOverlay(t.Context(), overlay.Path, top, overlayTestBytes, NewFile{}); err != nil {
		t.Fatal(err)
	}
	guestWrites(t, overlay, "write -P 0x41 10M 64k", "discard 20M 64k")
	want := content(t, overlay)
	if err := CommitOffline(t.Context(), overlay.Path, top, CommitOptions{}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content(t, top), want) {
		t.Error("the clone does not hold what the overlay held")
	}
	for n, path := range []string{top.Backing.Path, top.Backing.Backing.Path} {
		if !bytes.Equal(read(t, path), below[n]) {
			t.Errorf("%s, which is below it, was written", path)
		}
	}
}

func TestAChainIsReadFromItsHeaders(t *testing.T) {
	top := clones(t)
	chain, err := ReadChain(Image{Path: top.Path, Format: FormatQCOW2})
	if err != nil || chain == nil || chain.String() != top.Backing.String() || chain.Backing == nil ||
		chain.Backing.String() != top.Backing.Backing.String() || chain.Backing.Backing != nil {
		t.Errorf("chain %v (%v)", chain, err)
	}
	if chain, err = ReadChain(Image{Path: top.Path, Format: FormatRaw}); err != nil || chain != nil {
		t.Errorf("what a guest may have written as a header was followed: %v (%v)", chain, err)
	}
	dir := filepath.Dir(top.Path)
	for named, want := range map[string]string{
		"sub/../base.raw":                           dir + "/base.raw",
		"file:/pool/base.raw":                       "/pool/base.raw",
		`json:{"driver":"file","filename":"/pool"}`: "/pool",
	} {
		if got, err := backingPath(top.Path, named); err != nil || got != want {
			t.Errorf("%s is %s (%v), want %s", named, got, err, want)
		}
	}
	for _, named := range []string{"nbd://host/x", "rbd:pool/x", `json:{"driver":"nbd"}`, `json:{"driver":"file","filename":"/pool","offset":512}`} {
		if got, err := backingPath(top.Path, named); err == nil || !strings.Contains(err.Error(), "qemu-img rebase -u") {
			t.Errorf("%s is %s (%v), want a refusal that says what to do", named, got, err)
		}
	}
}

// For the kernel, .. after a symbolic link is the parent of the link's target.
func TestABackingFileAboveASymbolicLinkIsTheOneThatTheKernelOpens(t *testing.T) {
	dir := t.TempDir()
	there, link := filepath.Join(dir, "there", "clones"), filepath.Join(dir, "link")
	if err := errors.Join(os.MkdirAll(there, 0o700), os.Symlink(there, link)); err != nil {
		t.Fatal(err)
	}
	for image, want := range map[string]string{
		filepath.Join(link, "clone.qcow2"):  filepath.Join(dir, "there", "base.raw"),
		filepath.Join(there, "clone.qcow2"): filepath.Join(dir, "there", "base.raw"),
	} {
		if got := BackingPath(image, "../base.raw"); got != want {
			t.Errorf("../base.raw of %s is %s, want %s", image, got, want)
		}
	}
	if got, want := BackingPath(filepath.Join(link, "clone.qcow2"), "base.raw"), filepath.Join(link, "base.raw"); got != want {
		t.Errorf("base.raw is %s, want %s", got, want)
	}
}

// A guest that may write to the raw base could have put any header there.
func TestABackingFileWithoutAFormatIsNotProbed(t *testing.T) {
	base := newImage(t, "base", FormatRaw)
	top := over(t, base, "top")
	dropFormat(t, top.Path)
	_, err := ReadChain(Image{Path: top.Path, Format: FormatQCOW2})
	if err == nil {
		t.Fatal("it was read")
	}
	var open *ChainError
	if _, err := serve(t, top, false, nil); !errors.As(err, &open) {
		t.Errorf("served: %v", err)
	}
	// The command in the message solves the problem.
	_, command, _ := strings.Cut(err.Error(), "`qemu-img ")
	command, _, _ = strings.Cut(command, "`")
	qemuImg(t, strings.Fields(strings.Replace(command, "FORMAT", "raw", 1))...)
	if chain, err := ReadChain(Image{Path: top.Path, Format: FormatQCOW2}); err != nil || chain == nil || *chain != base {
		t.Errorf("after `qemu-img %s`: %v (%v)", command, chain, err)
	}
}

func TestAHeaderThatWasChangedSinceIsRefused(t *testing.T) {
	secret := newImage(t, "secret", FormatRaw)
	for what, change := range map[string]func(top Image){
		"another backing file": func(top Image) {
			qemuImg(t, "rebase", "-u", "-f", "qcow2", "-b", secret.Path, "-F", "raw", top.Path)
		},
		"another format": func(top Image) {
			qemuImg(t, "rebase", "-u", "-f", "qcow2", "-b", top.Backing.Path, "-F", "raw", top.Path)
		},
		"none": func(top Image) { qemuImg(t, "rebase", "-u", "-f", "qcow2", "-b", "", top.Path) },
		"another one two layers down": func(top Image) {
			qemuImg(t, "rebase", "-u", "-f", "qcow2", "-b", secret.Path, "-F", "raw", top.Backing.Path)
		},
	} {
		top := clones(t)
		change(top)
		var changed *ChainError
		if _, err := serve(t, top, false, nil); !errors.As(err, &changed) {
			t.Errorf("%s: served: %v", what, err)
		}
		if _, err := VirtualSize(t.Context(), top); !errors.As(err, &changed) {
			t.Errorf("%s: its size is read: %v", what, err)
		}
	}
}

func TestAChainThatLeadsBackToItselfIsRefused(t *testing.T) {
	top := clones(t)
	qemuImg(t, "rebase", "-u", "-f", "qcow2", "-b", top.Path, "-F", "qcow2", top.Backing.Path)
	var refused *ImageError
	if chain, err := ReadChain(Image{Path: top.Path, Format: FormatQCOW2}); !errors.As(err, &refused) {
		t.Errorf("chain %v (%v)", chain, err)
	}
}

// A base may be a raw image that a guest wrote before it became one.
func TestARawBaseThatLooksLikeQcow2IsReadAsBytes(t *testing.T) {
	secret := newImage(t, "secret", FormatRaw)
	guestWrites(t, secret, "write -P 0x73 0 4k")
	evil := newImage(t, "evil", FormatRaw)
	header := overlayBytes(t, secret, overlayTestBytes)
	f, err := os.OpenFile(evil.Path, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt(header, 0)
	must(t, errors.Join(err, f.Close()))
	top := over(t, evil, "top", "write -P 1 8M 4k")
	if chain, err := ReadChain(Image{Path: top.Path, Format: FormatQCOW2}); err != nil || chain == nil || chain.Backing != nil {
		t.Fatalf("chain %v (%v)", chain, err)
	}
	if got := servedContent(t, top); !bytes.Equal(got[:len(header)], header) {
		t.Error("the header in the base was obeyed")
	}
}

// dropFormat removes the format of the backing file from a header, as older programs wrote it.
func dropFormat(t *testing.T, path string) {
	t.Helper()
	b := read(t, path)
	at := bytes.Index(b, []byte{0xe2, 0x79, 0x2a, 0xca})
	if at < 0 {
		t.Fatal("there is no format")
	}
	copy(b[at:], "none") // an unknown extension
	must(t, os.WriteFile(path, b, 0o600))
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return b
}
