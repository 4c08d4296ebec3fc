// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/connector"
)

// runHolding runs a command of the fake, which ends as the test has set.
func (h *fakeHost) runHolding(ctx context.Context, lock *os.File, args ...string) ([]byte, error) {
	h.ran = append(h.ran, strings.ReplaceAll(strings.Join(args, " "), h.root, ""))
	other, err := os.OpenFile(lock.Name(), os.O_RDWR, 0)
	h.must(err)
	defer func() { _ = other.Close() }()
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		h.t.Errorf("the target copies while another one may begin: %v", err)
	}
	if len(h.copyExits) == 0 {
		return nil, nil
	}
	status := h.copyExits[0]
	h.copyExits = h.copyExits[1:]
	if status == 0 {
		return nil, nil
	}
	return nil, exitStatus(h.t, status)
}

// copying returns a host with both units connected, and the request of a copy.
func copying(t *testing.T) (*fakeHost, connector.Request) {
	t.Helper()
	h := newHost(t)
	h.connects(one)
	h.connects(two)
	for _, disk := range []string{"sda", "sdb", "sdc", "sdd"} {
		h.put(h.block(disk, "queue/logical_block_size"), "512")
	}
	h.ran = nil
	return h, connector.Request{
		Protocol: connector.Protocol, Verb: connector.VerbCopy, OpID: "op", Volume: two, Identity: strings.TrimPrefix(two, mapPrefix),
		Source:      &connector.Source{Volume: one, Identity: strings.TrimPrefix(one, mapPrefix), SizeBytes: size},
		OffsetBytes: 1 << 20, LengthBytes: 4 << 20,
	}
}

func TestATargetCopiesBetweenItsUnitsByPathsOfOneSession(t *testing.T) {
	h, in := copying(t)
	for _, lost := range [][]string{nil, {"sda"}} {
		for _, disk := range lost {
			h.put(h.block(disk, "device/state"), "transport-offline")
		}
		out, err := h.ask(in)
		if err != nil || out.CopiedToBytes != 5<<20 {
			t.Errorf("it has copied to %d, %v", out.CopiedToBytes, err)
		}
	}
	want := []string{
		"sg_xcopy if=/dev/sda of=/dev/sdb bs=512 skip=2048 seek=2048 count=8192",
		"sg_xcopy if=/dev/sdc of=/dev/sdd bs=512 skip=2048 seek=2048 count=8192",
	}
	if !slices.Equal(h.ran, want) {
		t.Errorf("it has run %q, want %q", h.ran, want)
	}
	h.put(h.block("sdd", "device/state"), "transport-offline")
	if _, err := h.ask(in); connector.CodeOf(err) != connector.CodeUnavailable {
		t.Errorf("without a session that has both: %v", err)
	}
}

// TestWhatTheTargetSaysOfACopy: without the target's answer the connector gives none.
func TestWhatTheTargetSaysOfACopy(t *testing.T) {
	for name, c := range map[string]struct {
		exits   []int
		code    string
		unclear bool
	}{
		"done":                       {exits: []int{0}},
		"a unit attention first":     {exits: []int{6, 0}},
		"illegal request":            {exits: []int{5}, code: connector.CodeUnsupported},
		"invalid operation code":     {exits: []int{9}, code: connector.CodeUnsupported},
		"copy aborted":               {exits: []int{10}, code: connector.CodeUnsupported},
		"no operating parameters":    {exits: []int{72}, code: connector.CodeUnsupported},
		"busy":                       {exits: []int{26}, code: connector.CodeBusy},
		"aborted again and again":    {exits: []int{11, 11, 11}, code: connector.CodeFailed},
		"an error of the medium":     {exits: []int{3}, code: connector.CodeFailed},
		"the session is lost":        {exits: []int{99}, code: connector.CodeFailed, unclear: true},
		"the kernel has given it up": {exits: []int{33}, code: connector.CodeFailed, unclear: true},
	} {
		t.Run(name, func(t *testing.T) {
			h, in := copying(t)
			h.copyExits = c.exits
			_, err := h.ask(in)
			if connector.CodeOf(err) != c.code || errors.Is(err, errUnclear) != c.unclear || len(h.copyExits) > 0 {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestNothingIsCopiedBetweenOtherUnits than the requested ones.
func TestNothingIsCopiedBetweenOtherUnits(t *testing.T) {
	for name, c := range map[string]struct {
		change func(h *fakeHost, in *connector.Request)
		code   string
	}{
		"another destination": {func(_ *fakeHost, in *connector.Request) { in.Identity = "mpath-other" }, connector.CodeChanged},
		"another source":      {func(_ *fakeHost, in *connector.Request) { in.Source.Identity = "mpath-other" }, connector.CodeChanged},
		"another size":        {func(_ *fakeHost, in *connector.Request) { in.Source.SizeBytes = 2 * size }, connector.CodeInvalid},
		"by another name":     {func(_ *fakeHost, in *connector.Request) { in.Volume = single }, connector.CodeInvalid},
		"no unit":             {func(_ *fakeHost, in *connector.Request) { in.Volume = "sda" }, connector.CodeNotFound},
		"a part of a block":   {func(_ *fakeHost, in *connector.Request) { in.OffsetBytes = 100 }, connector.CodeInvalid},
		"blocks of two sizes": {func(h *fakeHost, _ *connector.Request) { h.put(h.block("sdb", "queue/logical_block_size"), "4096") }, connector.CodeUnsupported},
		"not connected":       {func(h *fakeHost, _ *connector.Request) { h.must(h.disconnect(two)) }, connector.CodeNotConnected},
	} {
		t.Run(name, func(t *testing.T) {
			h, in := copying(t)
			c.change(h, &in)
			h.ran = nil
			if _, err := h.ask(in); connector.CodeOf(err) != c.code {
				t.Errorf("got %v, want %s", err, c.code)
			}
			if len(h.ran) > 0 {
				t.Errorf("it has run %q", h.ran)
			}
		})
	}
}

// TestNobodyGetsAVolumeToWhichTheTargetCopies, even if the connector that began the copy has died.
func TestNobodyGetsAVolumeToWhichTheTargetCopies(t *testing.T) {
	for name, ask := range map[string]func(h *fakeHost, in connector.Request) error{
		"copy":       func(h *fakeHost, in connector.Request) error { _, err := h.ask(in); return err },
		"connect":    func(h *fakeHost, _ connector.Request) error { _, err := h.connect(two); return err },
		"disconnect": func(h *fakeHost, _ connector.Request) error { return h.disconnect(two) },
	} {
		t.Run(name, func(t *testing.T) {
			h, in := copying(t)
			u, _ := unitOf(two)
			lock := h.copyLock(u)
			h.must(unix.Flock(int(lock.Fd()), unix.LOCK_EX))
			ended := make(chan error, 1)
			go func() { ended <- ask(h, in) }()
			for !h.isWaitedFor(lock) {
				if len(ended) > 0 {
					t.Fatalf("it has ended while the target copies: %v", <-ended)
				}
			}
			h.must(lock.Close())
			h.must(<-ended)
		})
	}
}

// copyLock opens the lock that sg_xcopy has inherited.
func (h *fakeHost) copyLock(u unit) *os.File {
	h.t.Helper()
	f, err := os.OpenFile(h.at("run/iscsi/copy-"+u.wwid), os.O_RDWR|os.O_CREATE, 0o600)
	h.must(err)
	return f
}

// isWaitedFor reports whether, according to the kernel, a process waits for a lock.
func (h *fakeHost) isWaitedFor(lock *os.File) bool {
	h.t.Helper()
	var st unix.Stat_t
	h.must(unix.Fstat(int(lock.Fd()), &st))
	inode := ":" + strconv.FormatUint(st.Ino, 10) + " "
	text, err := os.ReadFile("/proc/locks")
	h.must(err)
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "-> FLOCK") && strings.Contains(line, inode) {
			return true
		}
	}
	return false
}
