// SPDX-License-Identifier: Apache-2.0

package power

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// dump is a program that opens journals as volferryd does.
type dump struct {
	paths   io.WriteCloser
	answers *bufio.Reader
}

// journal is what is in one.
type journal struct {
	Error   string
	Ops     []struct{ ID, Kind string }
	Records []record
}

// record is a record of an op.
type record struct {
	OpID, Step string
	Kind       string
}

// The kinds of records that count here. What else there is says nothing of names.
const (
	started     = "started"
	succeeded   = "succeeded"
	undoStarted = "undo_started"
	undone      = "undone"
	noted       = "noted"
)

func startDump(t *testing.T, root, program string) *dump {
	t.Helper()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./daemon/internal/journal/journaldump")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build journaldump: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	paths, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = errors.Join(paths.Close(), cmd.Wait()) }) // it may have died with the test's context
	return &dump{paths: paths, answers: bufio.NewReader(out)}
}

func (d *dump) read(path string) (j journal, err error) {
	if _, err := fmt.Fprintln(d.paths, path); err != nil {
		return j, err
	}
	line, err := d.answers.ReadBytes('\n')
	if err != nil {
		return j, err
	}
	if err := json.Unmarshal(line, &j); err != nil {
		return j, err
	}
	if j.Error != "" {
		return j, errors.New(j.Error)
	}
	return j, nil
}

// place is where the disk of the instance is, by its definition or by the journal.
type place string

const (
	onSrc     place = "src"
	onOverlay place = "overlay over src"
	onDst     place = "dst"
)

// names says where a step puts the disk, if it does.
func names(kind, step string) (place, bool) {
	end := onDst
	if kind == "migration_cancel" || kind == "migration_rollback" {
		end = onSrc
	}
	switch step {
	case "name_overlay":
		return onOverlay, true
	case "name_dst", "name_dst_after_pivot", "name_dst_while_off":
		return onDst, true
	case "name_src":
		return onSrc, true
	case "pivot", "fold":
		return end, true
	default:
		return "", false
	}
}

// mayName is what a definition may name by the journal: what the last step named that is over,
// and what the one names that has begun.
func (j *journal) mayName() []place {
	kinds := map[string]string{}
	for _, o := range j.Ops {
		kinds[o.ID] = o.Kind
	}
	settled, before := onSrc, onSrc
	var begun []place
	for _, r := range j.Records {
		to, ok := names(kinds[r.OpID], r.Step)
		if !ok {
			continue
		}
		switch r.Kind {
		case started:
			begun = append(begun, to)
		case succeeded:
			settled, before, begun = to, settled, nil
		case undoStarted:
			begun = append(begun, before)
		case undone:
			settled, begun = before, nil
		}
	}
	return append(begun, settled)
}

// step is the last word of the journal on a step, "" if there is none.
func (j *journal) step(name string) string {
	var last string
	for _, r := range j.Records {
		if r.Step == name && r.Kind != noted {
			last = r.Kind
		}
	}
	return last
}

// where says in words how far the journal is.
func (j *journal) where() string {
	if len(j.Records) == 0 {
		return "before the first record"
	}
	r := j.Records[len(j.Records)-1]
	return fmt.Sprintf("%s %s", r.Step, r.Kind)
}
