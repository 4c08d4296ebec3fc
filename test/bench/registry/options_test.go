// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"strings"
	"testing"
)

func TestWhatCannotBeMeasuredIsRefused(t *testing.T) {
	for _, args := range []string{"--only none", "--only one,", "--only etcd", "--rounds 0", "--clients 10 --attachments 9", "word"} {
		if _, err := parse(strings.Fields(args), names(), io.Discard); err == nil {
			t.Errorf("%s was taken", args)
		}
	}
	for _, args := range []string{"", "--only one,both", "--only etcd --etcd bin/bench-etcd"} {
		if _, err := parse(strings.Fields(args), names(), io.Discard); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestEtcdIsMeasuredInFiveRoundsUnlessAskedOtherwise(t *testing.T) {
	for args, want := range map[string]int{"": 5, "--rounds 7": 7} {
		if o, err := parse(strings.Fields(args), names(), io.Discard); err != nil || o.rounds != want {
			t.Errorf("%q: %d rounds, want %d: %v", args, o.rounds, want, err)
		}
	}
}

func TestHelpSaysHowLongItTakesAndIsNoFailure(t *testing.T) {
	var help bytes.Buffer
	if _, err := parse([]string{"--help"}, names(), &help); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("--help is %v", err)
	}
	if !strings.Contains(help.String(), "minutes") || !strings.Contains(help.String(), "-rounds") {
		t.Errorf("help does not say what a run takes:\n%s", help.String())
	}
}
