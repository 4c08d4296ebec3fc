// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/volferry/volferry/internal/humanize"
)

// Run is what a file says of when and where its tests ran.
type Run struct {
	// Version is that of the programs, which ends in the commit. Machine is the processors, the
	// kernel, libvirt and QEMU. Both are empty if the file does not say them.
	Version, Machine    string
	Began, Ended        time.Time
	Packages            []string
	Functions           int // tests that came to an end, without their subtests
	Writes, WritesFound int // that guests were answered for, and of these found again
}

// runLine begins the line that make prints before what the tests print (RunLine).
const runLine = "volferry, as these tests have it: "

// RunLine is the line of a run for those who read it later.
func RunLine(version, machine string) string { return runLine + version + "; " + machine }

var (
	// builtVersion is the version in a command of make build.
	builtVersion = regexp.MustCompile(`internal/version\.Version=([^'\s]+)`)
	// foundWrites is how a test with a real guest says what became of its writes.
	foundWrites = regexp.MustCompile(`: (\d+) writes acknowledged, (\d+) found`)
)

// ReadRun hands over what 'go test -json' printed about tests, and returns what else is known of
// the run.
func ReadRun(r io.Reader, module string, take func(Event) error) (*Run, error) {
	run := &Run{}
	err := readLines(r, func(e Event) error {
		run.see(e, strings.TrimPrefix(e.Package, module+"/"))
		return take(e)
	}, run.hear)
	return run, err
}

// hear takes in a line that is no event.
func (run *Run) hear(line string) {
	switch said, isRun := strings.CutPrefix(line, runLine); {
	case isRun:
		run.Version, run.Machine, _ = strings.Cut(said, "; ")
	case run.Version == "":
		if built := builtVersion.FindStringSubmatch(line); built != nil {
			run.Version = built[1]
		}
	}
}

// see takes in an event of a package that is below the module.
func (run *Run) see(e Event, folder string) {
	if !e.Time.IsZero() {
		if run.Began.IsZero() {
			run.Began = e.Time
		}
		run.Ended = e.Time
	}
	if !slices.Contains(run.Packages, folder) {
		run.Packages = append(run.Packages, folder)
		slices.Sort(run.Packages)
	}
	switch {
	case e.Action == "output":
		if found := foundWrites.FindStringSubmatch(e.Output); found != nil {
			run.Writes += number(found[1])
			run.WritesFound += number(found[2])
		}
	case (e.Action == "pass" || e.Action == "fail") && !strings.Contains(e.Test, "/"):
		run.Functions++
	}
}

func number(text string) (n int) {
	_, _ = fmt.Sscan(text, &n) // it is of digits
	return n
}

// where is the packages of the run, or how many they are if nobody would read them all.
func (run *Run) where() string {
	const few = 5
	if len(run.Packages) > few {
		return humanize.Count(len(run.Packages), "package")
	}
	return strings.Join(run.Packages, ", ")
}

// String is the run in words.
func (run *Run) String() string {
	const minute = "2006-01-02 15:04"
	text := fmt.Sprintf("%s to %s UTC, %s: %s of %s; on %s", run.Began.UTC().Format(minute), run.Ended.UTC().Format(minute),
		cmp.Or(run.Version, "a commit that its file does not say"), humanize.Count(run.Functions, "test"), run.where(),
		cmp.Or(run.Machine, "a machine that its file does not say"))
	if run.Writes > 0 {
		text += fmt.Sprintf(". Guests were answered for %d writes, counted at each look, and %d were found", run.Writes, run.WritesFound)
	}
	return text
}
