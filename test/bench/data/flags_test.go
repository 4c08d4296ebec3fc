// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"slices"
	"strings"
	"testing"
)

// parsed are options as the flags say.
func parsed(t *testing.T, args ...string) options {
	t.Helper()
	o, err := parse(args, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// groupsOf are the groups on a machine that has every program; those that it lacks would be left
// out.
func groupsOf(t *testing.T, o options) []group {
	t.Helper()
	groups, _, err := o.groups()
	if err != nil {
		t.Fatal(err)
	}
	return groups
}

func TestASmallRunHasFiveRoundsOfAFullVolumeOnOneDisk(t *testing.T) {
	o := parsed(t)
	if o.rounds != 5 || len(o.settings()) != 1 || o.settings()[0] != (setting{fill: 100, disks: 1}) {
		t.Errorf("%d rounds of %+v", o.rounds, o.settings())
	}
	for _, g := range groupsOf(t, o) {
		for _, c := range g.contenders {
			if c.full {
				t.Errorf("%s is in a small run", c.name)
			}
		}
	}
}

func TestEveryGroupHasTheContenderThatOthersAreComparedWith(t *testing.T) {
	for _, g := range groupsOf(t, parsed(t, "--full")) {
		if !slices.ContainsFunc(g.contenders, func(c contender) bool { return c.name == g.reference() && c.managed && !c.full }) {
			t.Errorf("%s is not in: %s", g.reference(), g.title())
		}
	}
}

func TestAFullRunHasEveryWriterWithEveryFillOnOneDiskAndOnTwo(t *testing.T) {
	o := parsed(t, "--full")
	if o.rounds < 5 {
		t.Errorf("a full run has %d rounds", o.rounds)
	}
	have := make(map[setting][]string)
	for _, g := range groupsOf(t, o) {
		have[g.setting] = append(have[g.setting], g.name)
	}
	for _, fill := range []uint64{10, 50, 100} {
		for _, disks := range []uint64{1, 2} {
			for _, name := range append(writerNames(), stopped) {
				if at := (setting{fill, disks}); !slices.Contains(have[at], name) {
					t.Errorf("%s is not measured with %+v", name, at)
				}
			}
		}
	}
	if !o.wants(contender{full: true}) {
		t.Error("a full run leaves contenders out")
	}
}

func TestAFlagBesideFullIsObeyed(t *testing.T) {
	o := parsed(t, "--fill", "10,20", "--full", "--rounds=1", "--disks", "2")
	if o.fills.String() != "10,20" || o.rounds != 1 || o.disks.String() != "2" {
		t.Errorf("fills %v, rounds %d, disks %v", o.fills, o.rounds, o.disks)
	}
}

func TestAContenderThatIsAskedForByNameRunsWithoutFull(t *testing.T) {
	o := parsed(t, "--only", "volferry-external")
	groups := groupsOf(t, o)
	if len(groups) != 1 || len(groups[0].contenders) != 1 || groups[0].contenders[0].name != "volferry-external" {
		t.Errorf("what runs is %+v", groups)
	}
}

func TestACloneIsNotMeasuredWhereThereIsNone(t *testing.T) {
	clones := func(o options) (names []string) {
		for _, g := range groupsOf(t, o) {
			for _, c := range g.contenders {
				if c.reflink {
					names = append(names, c.name)
				}
			}
		}
		return names
	}
	if got := clones(parsed(t)); !slices.Contains(got, "volferry-reflink") || !slices.Contains(got, "volferry-stopped-reflink") {
		t.Errorf("clones on one disk of XFS are %v", got)
	}
	for _, o := range []options{parsed(t, "--disks", "2"), parsed(t, "--fs", "ext4")} {
		if got := clones(o); len(got) > 0 {
			t.Errorf("on %v disks of %s, %v is measured", o.disks.String(), o.fs, got)
		}
	}
	_, missing, err := parsed(t, "--fs", "ext4").groups()
	if err != nil || !slices.Contains(missing, "volferry-reflink: files of ext4 share no extents") {
		t.Errorf("what is left out is not said: %q, %v", missing, err)
	}
}

func TestWhatCannotBeMeasuredIsRefused(t *testing.T) {
	for _, args := range []string{"--fill 101", "--fill x", "--disks 3", "--disks 0", "--size 8", "--rounds 0", "word"} {
		if _, err := parse(strings.Fields(args), io.Discard); err == nil {
			t.Errorf("%s was taken", args)
		}
	}
	for _, o := range []options{{only: "rsync"}, {writers: "depth7"}} {
		if _, _, err := o.groups(); err == nil || !strings.Contains(err.Error(), "there is no") {
			t.Errorf("%+v was taken: %v", o, err)
		}
	}
}

func TestHelpSaysHowLongItTakesAndIsNoFailure(t *testing.T) {
	var help bytes.Buffer
	if _, err := parse([]string{"--help"}, &help); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("--help is %v", err)
	}
	if !strings.Contains(help.String(), "minutes") || !strings.Contains(help.String(), "-full") {
		t.Errorf("help does not say what a run takes:\n%s", help.String())
	}
}
