// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

// small are options for a run of seconds.
func small(t *testing.T) options {
	t.Helper()
	lab.Require(t)
	if testing.Short() {
		t.Skip("SKIPPED: left to make test-e2e")
	}
	root, err := site.Root()
	if err != nil {
		t.Fatal(err)
	}
	o := options{sizeMiB: 16, fills: numbers{50}, disks: numbers{1}, rounds: 1, seconds: time.Second, fs: "xfs", seed: 1, out: t.TempDir(), bin: filepath.Join(root, "bin")}
	if _, err := os.Stat(filepath.Join(o.bin, "volferryd")); err != nil {
		lab.SkipOrFail(t, "run 'make build' first: "+err.Error())
	}
	return o
}

// smallStage is one of small options, for the test.
func smallStage(t *testing.T) *stage {
	t.Helper()
	s, err := setUp(t.Context(), small(t))
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestContendersWithoutAGuestAreMeasured(t *testing.T) {
	o := small(t)
	o.disks = numbers{1, 2}
	o.only = "volferry-stopped-noverify,qemu-img,dd,volferry-stopped-reflink,cp-reflink"
	var out bytes.Buffer
	if err := run(t.Context(), o, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	raw, err := os.ReadFile(filepath.Join(o.out, "results.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	// The first line is the machine's.
	for name := range strings.SplitSeq(o.only, ",") {
		if !strings.Contains(string(raw), `"contender":"`+name+`"`) {
			t.Errorf("%s is not in the raw results:\n%s", name, raw)
		}
	}
	if got := strings.Count(string(raw), `"checked_blocks":4096`); got != 8 {
		t.Errorf("%d of 8 destinations, of which three are on another disk, too, were read whole:\n%s", got, raw)
	}
}

func TestAContenderThatLeavesBytesOutFails(t *testing.T) {
	s := smallStage(t)
	half := contender{name: "half", moves: tool("dd if=SRC of=DST bs=1M count=8 conv=fsync,notrunc status=none")}
	r, err := s.measure(t.Context(), half, group{setting: setting{fill: 50, disks: 1}})
	if err == nil || !strings.Contains(err.Error(), "blocks are wrong") {
		t.Errorf("half a copy was taken for a whole one: %v", err)
	}
	if r.TotalSeconds != 0 {
		t.Errorf("a copy that failed took %v s", r.TotalSeconds)
	}
}

func TestACopyThatIsNoCloneFailsWhereACloneIsAskedFor(t *testing.T) {
	s := smallStage(t)
	whole := contender{name: "whole", reflink: true, moves: tool("dd if=SRC of=DST bs=1M conv=fsync,notrunc status=none")}
	if _, err := s.measure(t.Context(), whole, group{setting: setting{fill: 50, disks: 1}}); !errors.Is(err, errNoClone) {
		t.Errorf("a copy was taken for a clone: %v", err)
	}
}
