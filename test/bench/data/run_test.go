// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

func TestContendersWithoutAGuestAreMeasured(t *testing.T) {
	lab.Require(t)
	root, err := site.Root()
	if err != nil {
		t.Fatal(err)
	}
	o := options{
		sizeMiB: 16, fill: 50, rounds: 1, seconds: time.Second, fs: "xfs", seed: 1, out: t.TempDir(),
		only: "volferry-stopped-noverify,qemu-img,dd", bin: filepath.Join(root, "bin"),
	}
	if _, err := os.Stat(filepath.Join(o.bin, "volferryd")); err != nil {
		lab.SkipOrFail(t, "run 'make build' first: "+err.Error())
	}
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
	if got := strings.Count(string(raw), `"checked_blocks":4096`); got != 3 {
		t.Errorf("%d of 3 destinations were read whole:\n%s", got, raw)
	}
}

func TestANameThatNobodyHasIsRefused(t *testing.T) {
	for _, o := range []options{{only: "rsync"}, {writers: "depth7"}} {
		if _, err := o.groups(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "there is no") {
			t.Errorf("%+v was taken: %v", o, err)
		}
	}
}
