// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// These tests open many overlays.
func init() { hashMS = 10 }

var (
	passphrase = []byte("a passphrase, of a test")
	plaintext  = bytes.Repeat([]byte{0xa7}, 4096)
)

// keyArgs are the passphrase arguments of a test's tools.
func keyArgs(t *testing.T) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	must(t, os.WriteFile(path, passphrase, 0o600))
	return []string{"--object", "secret,id=" + keyID + ",file=" + path}
}

// tool runs one of QEMU's tools.
func tool(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}

// firstContainer is the first result of newContainer, with the largest payload. QEMU measures its
// hashing speed for seconds, even with a short hashing time.
var firstContainer []byte

const largestPayload = 8 << 20

// newContainer makes a LUKS container with this payload size, from the beginning of the first one.
func newContainer(t *testing.T, payloadBytes int) Image {
	t.Helper()
	path := filepath.Join(t.TempDir(), "container.raw")
	if firstContainer == nil {
		encrypted(t, path, largestPayload, "10")
		var err error
		firstContainer, err = os.ReadFile(path)
		must(t, err)
	}
	must(t, os.WriteFile(path, firstContainer[:len(firstContainer)-largestPayload+payloadBytes], 0o600))
	return Image{Path: path, Format: FormatRaw, LUKS: true}
}

// leftToTestSimulation skips a test that takes too long for make test.
func leftToTestSimulation(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: left to make test-simulation")
	}
}

// encrypted makes a container with this hashing time of its passphrase.
func encrypted(t *testing.T, path string, payloadBytes int64, hashMS string) {
	t.Helper()
	args := append([]string{"create", "-q", "-f", "luks", "-o", "key-secret=" + keyID + ",iter-time=" + hashMS}, keyArgs(t)...)
	must(t, untilTimed(func() error {
		out, err := exec.CommandContext(t.Context(), "qemu-img", append(args, path, fmt.Sprint(payloadBytes))...).CombinedOutput()
		if err != nil {
			err = &CommandError{Verb: "create", Stderr: string(out), Err: err}
		}
		return err
	}))
}

// guestReads lets a guest compare or write an image's content.
func guestReads(t *testing.T, options string, commands ...string) {
	t.Helper()
	args := append(keyArgs(t), "--image-opts")
	for _, c := range commands {
		args = append(args, "-c", c)
	}
	tool(t, "qemu-io", append(args, options)...)
}

func TestAnOverlayOverALUKSContainerIsEncryptedAndFoldsIntoAnyCopyOfIt(t *testing.T) {
	const payload = 8 << 20
	src := newContainer(t, payload)
	guestReads(t, src.options("", protocolFile), "write -P 0x11 0 1M")
	if n, err := VirtualSize(t.Context(), src); err != nil || n != payload {
		t.Fatalf("the guest sees %d bytes, %v", n, err)
	}
	dst := Image{Path: src.Path + ".copy", Format: FormatRaw, LUKS: true}
	container, err := os.ReadFile(src.Path)
	must(t, err)
	must(t, os.WriteFile(dst.Path, container, 0o600))

	ovl := filepath.Join(t.TempDir(), "ovl")
	about := NewFile{Passphrase: passphrase}
	for range 2 { // the second time it exists already
		must(t, CreateOverlay(t.Context(), ovl, src, payload, about))
	}
	if empty, err := CheckOverlay(ovl, src, payload); err != nil || !empty {
		t.Errorf("a new overlay: empty %v, %v", empty, err)
	}
	over := Image{Path: ovl, Format: FormatQCOW2, LUKS: true}
	chain := over.options("", protocolFile) + "," + src.options("backing.", protocolFile)
	guestReads(t, chain, "read -P 0x11 0 1M", "write -P 0xa7 1M 256k", "write -z 512k 64k")
	if empty, err := CheckOverlay(ovl, src, payload); err != nil || empty {
		t.Errorf("a written overlay: empty %v, %v", empty, err)
	}

	if err := CommitOffline(t.Context(), ovl, dst, CommitOptions{Passphrase: []byte("another")}); err == nil {
		t.Error("another passphrase folds the overlay")
	}
	over.Backing = &src
	written := servedContent(t, over)
	if int64(len(written)) != payload || bytes.Equal(written, servedContent(t, dst)) {
		t.Errorf("before the fold the overlay has %d bytes, and they are those of dst", len(written))
	}
	must(t, CommitOffline(t.Context(), ovl, dst, CommitOptions{Passphrase: passphrase}))
	guestReads(t, dst.options("", protocolFile), "read -P 0x11 0 512k", "read -P 0 512k 64k", "read -P 0xa7 1M 256k")
	if !bytes.Equal(written, servedContent(t, dst)) {
		t.Error("after the fold dst has other bytes than the overlay")
	}
	if after, err := os.ReadFile(src.Path); err != nil || !bytes.Equal(after, container) {
		t.Errorf("src has changed: %v", err)
	}
	for _, path := range []string{ovl, dst.Path} {
		if b, err := os.ReadFile(path); err != nil || bytes.Contains(b, plaintext) || bytes.Contains(b, passphrase) {
			t.Errorf("%s has plaintext or passphrase in it: %v", path, err)
		}
	}
}

func TestAnOverlayThatIsNotEncryptedAsItsVolumeIsIsNoOverlayOfIt(t *testing.T) {
	const payload = 1 << 20
	src := newContainer(t, payload)
	clear := Image{Path: src.Path, Format: FormatRaw}
	dir := t.TempDir()
	open, encrypted := filepath.Join(dir, "clear"), filepath.Join(dir, "encrypted")
	// Its header names the container.
	tool(t, "qemu-img", "create", "-q", "-u", "-f", "qcow2", "-F", "luks", "-b", src.Path, open, fmt.Sprint(payload))
	must(t, CreateOverlay(t.Context(), encrypted, src, payload, NewFile{Passphrase: passphrase}))
	key := CommitOptions{Passphrase: passphrase}
	for what, err := range map[string]error{
		"in the clear, over a container":  second(CheckOverlay(open, src, payload)),
		"encrypted, over what is raw":     second(CheckOverlay(encrypted, clear, payload)),
		"fold of a clear overlay":         CommitOffline(t.Context(), open, src, key),
		"creation over a clear overlay":   CreateOverlay(t.Context(), open, src, payload, NewFile{Passphrase: passphrase}),
		"a volume that is encrypted":      second(VirtualSize(t.Context(), Image{Path: encrypted, Format: FormatQCOW2})),
		"blank":                           second(Empty(Image{Path: encrypted, Format: FormatQCOW2})),
		"a container that is a slice":     second(VirtualSize(t.Context(), Image{Path: src.Path, Format: FormatRaw, LUKS: true, SliceBytes: 512})),
		"over a qcow2 image":              CreateOverlay(t.Context(), filepath.Join(dir, "x"), Image{Path: "/q", Format: FormatQCOW2, LUKS: true}, payload, NewFile{Passphrase: passphrase}),
		"a fold of an encrypted as clear": CommitOffline(t.Context(), encrypted, clear, CommitOptions{}),
	} {
		var refused *ImageError
		var size *SizeError // the payload is smaller than the container
		if !errors.As(err, &refused) && !errors.As(err, &size) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := CreateOverlay(t.Context(), filepath.Join(dir, "y"), src, payload, NewFile{}); !errors.Is(err, errNoKey) {
		t.Errorf("an overlay without a passphrase: %v", err)
	}
	if err := CommitOffline(t.Context(), encrypted, src, CommitOptions{}); !errors.Is(err, errNoKey) {
		t.Errorf("a fold without a passphrase: %v", err)
	}
}

// The count depends on CPU time, which varies.
func TestAnOverlayIsAsHardToOpenAsItsContainer(t *testing.T) {
	leftToTestSimulation(t)
	var counts []uint32
	for _, ms := range []string{"20", "400"} {
		path := filepath.Join(t.TempDir(), "container.raw")
		encrypted(t, path, 1<<20, ms)
		ovl := path + ".ovl"
		must(t, CreateOverlay(t.Context(), ovl, Image{Path: path, Format: FormatRaw, LUKS: true}, 1<<20, NewFile{Passphrase: passphrase}))
		for _, file := range []string{path, ovl} {
			f, err := os.Open(file)
			must(t, err)
			at := int64(0)
			if h, err := parseHeader(f); err == nil {
				at = h.luksAt
			}
			n, err := iterations(f, at)
			must(t, errors.Join(err, f.Close()))
			counts = append(counts, n)
		}
	}
	for i := 0; i < len(counts); i += 2 {
		if is := float64(counts[i+1]) / float64(counts[i]); is < 0.5 || is > 2 {
			t.Errorf("the passphrase of the overlay is hashed %d times, of the container %d times", counts[i+1], counts[i])
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestALUKSHeaderThatQEMUDoesNotOpenIsAnError(t *testing.T) {
	whole := make([]byte, 1<<20)
	copy(whole, luksMagic)
	binary.BigEndian.PutUint16(whole[luksVersionAt:], luksVersion)
	binary.BigEndian.PutUint32(whole[luksPayloadAt:], 1024)
	if n, err := payloadOffset(bytes.NewReader(whole), int64(len(whole))); err != nil || n != 512<<10 {
		t.Fatalf("%d, %v", n, err)
	}
	for what, spoil := range map[string]func(b []byte) []byte{
		"empty":                        func([]byte) []byte { return nil },
		"short":                        func(b []byte) []byte { return b[:100] },
		"no magic":                     func(b []byte) []byte { b[0] = 0; return b },
		"LUKS2":                        func(b []byte) []byte { b[7] = 2; return b },
		"payload at 0":                 func(b []byte) []byte { clear(b[luksPayloadAt : luksPayloadAt+4]); return b },
		"payload over the keys":        func(b []byte) []byte { binary.BigEndian.PutUint32(b[luksPayloadAt:], 8); return b },
		"payload at the end":           func(b []byte) []byte { return b[:512<<10] },
		"payload beyond the end":       func(b []byte) []byte { binary.BigEndian.PutUint32(b[luksPayloadAt:], 1<<32-1); return b },
		"no whole number of sectors":   func(b []byte) []byte { return b[:len(b)-1] },
		"a header at the very end":     func(b []byte) []byte { return b[:luksHeaderBytes-1] },
		"a header and nothing besides": func(b []byte) []byte { return b[:luksHeaderBytes] },
	} {
		b := spoil(bytes.Clone(whole))
		if n, err := payloadOffset(bytes.NewReader(b), int64(len(b))); err == nil {
			t.Errorf("%s: the payload is at %d", what, n)
		}
	}
}

// The test searches for the passphrase while a child runs.
func TestThePassphraseIsInNoArgumentAndNoEnvironmentOfAChild(t *testing.T) {
	src := newContainer(t, 1<<20)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	program := filepath.Join(dir, "qemu-img")
	// A replacement that prints its arguments and environment, and the key if it can read it.
	script := "#!/bin/sh\ncat /proc/$$/cmdline /proc/$$/environ | tr '\\0' '\\n' >&2\necho KEY >&2\nfor a; do case $a in secret,*) cat ${a##*file=} >&2;; esac; done\nexit 1\n"
	must(t, os.WriteFile(program, []byte(script), 0o700))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	// Its result is no overlay.
	err := CreateOverlay(ctx, filepath.Join(dir, "ovl"), src, 1<<20, NewFile{Passphrase: passphrase})
	failed := (*CommandError)(nil)
	if !errors.As(err, &failed) {
		t.Fatalf("nothing was made, and nobody noticed: %v", err)
	}
	seen, key, _ := strings.Cut(failed.Stderr, "KEY\n")
	if strings.Contains(seen, string(passphrase)) || !strings.Contains(seen, "secret,id=") {
		t.Errorf("the child was given %s", seen)
	}
	if key != string(passphrase) {
		t.Errorf("by the open file it got %q", key)
	}
}
