// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"fmt"
	"time"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
	"github.com/volferry/volferry/internal/retry"
	"github.com/volferry/volferry/internal/routes"
)

const (
	// noticeAfter is how long nothing is said of a wait: most are over by then.
	noticeAfter = 3 * time.Second
	// noticePoll is how often the op is read, and noticeRepeat how often the same wait
	// is reported once more.
	noticePoll   = 5 * time.Second
	noticeRepeat = 30 * time.Second
)

// waitNotice reports what an op without progress waits for, and since when.
type waitNotice struct {
	// readOp reads the op; nil if that is not possible.
	readOp func(context.Context) *api.Op
	// before is what to wait for as long as the op is not known; "" says nothing.
	before string
	// otherwise is what comes after before: where to look.
	otherwise string
	say       func(line string)

	// last is what was reported last, at lastAt.
	last   string
	lastAt time.Time
	// step is the step of the op when it was read last, and since when it is in it.
	step  string
	since time.Time
}

// run reads the op now and then until ctx ends.
func (n *waitNotice) run(ctx context.Context) {
	n.since = time.Now()
	for pause := noticeAfter; retry.Sleep(ctx, pause) == nil; pause = noticePoll {
		op := n.readOp(ctx)
		if ctx.Err() == nil {
			n.update(op, time.Now())
		}
	}
}

// update reports what the op waits for, if that is new or was reported a while ago.
func (n *waitNotice) update(op *api.Op, now time.Time) {
	what, since, rest := n.before, n.since, n.otherwise+"."
	if op != nil {
		rest = "; Ctrl-C leaves it running."
		if op.Step != n.step {
			n.step, n.since = op.Step, now
		}
		what, since = waitReason(op), n.since
		if op.WaitingSince != nil {
			since = *op.WaitingSince
		}
		if opFinished(op.State) {
			what = ""
		}
	}
	elapsed := now.Sub(since)
	if what == "" || elapsed < noticeAfter || what == n.last && now.Sub(n.lastAt) < noticeRepeat {
		return
	}
	n.last, n.lastAt = what, now
	n.say(fmt.Sprintf("Waiting for %s (%s)%s", what, render.Duration(elapsed.Truncate(time.Second)), rest))
}

// waitReason is what an op waits for, in words for a person; "" if it waits for nothing.
func waitReason(op *api.Op) string {
	switch op.WaitingFor {
	case "registry":
		return "the registry, which does not answer"
	case "hypervisor":
		return "libvirt, which does not answer"
	case "processes":
		return "volferryd-processes, which does not say what the processes of guests have open (`systemctl status volferryd-processes.socket volferryd-processes.service`)"
	case "storage":
		return "the storage, which does not answer"
	case "wake":
		return "the guest to run or to be off: it is asleep or has crashed (virsh dompmwakeup; reset, then resume; or destroy)"
	case "backup":
		return "the end of a backup of the guest's disk, which somebody else has begun (virsh domjobabort ends it)"
	case "resume":
		return "libvirt to resume the guest, which is paused; `volferryctl status` says why it does not"
	case "guest":
		return "the guest, which still has the disk"
	case "turn":
		if op.Behind != "" {
			return "operation " + op.Behind + ", which was asked for before"
		}
		return "another operation, which was asked for before"
	case "":
		return stepWaitReasons[op.Step]
	}
	return op.WaitingFor
}

// stepWaitReasons are the steps of stop, shelve and detach that wait for a guest, and
// what they wait for.
var stepWaitReasons = map[string]string{
	"power_off":   "the guest to shut down",
	"stop":        "the guest to shut down",
	"detach_live": "the guest to let go of the disk",
}

// startWaitNotice says what the op waits for, after a few seconds and until
// stop is called; before is what to report as long as the op is not known, or for ever if
// opID is "".
func (s *Session) startWaitNotice(ctx context.Context, say func(line string), opID, before string) (stop func()) {
	if s.Quiet || s.Progress == ProgressNone {
		return func() {}
	}
	n := waitNotice{
		readOp: func(ctx context.Context) *api.Op {
			if opID == "" {
				return nil
			}
			op := new(api.Op)
			if err := s.Client.Do(ctx, routes.ShowOp.Method, routes.ShowOp.PathOf(opID), nil, op, client.Within(noticePoll)); err != nil {
				return nil
			}
			return op
		},
		before:    before,
		otherwise: s.whyNoAnswer(),
		say:       say,
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// opFinished reports whether an op with this state or result is over.
func opFinished(state string) bool {
	return state == api.OpDone || state == api.OpUndone || state == api.OpNeedsOperator
}
