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
	// noticeAfter is the time before the first notice. Most waits are shorter.
	noticeAfter = 3 * time.Second
	// noticePoll is the interval between reads of the op, noticeRepeat between reports of the same
	// wait.
	noticePoll   = 5 * time.Second
	noticeRepeat = 30 * time.Second
)

// waitNotice reports what an op without progress waits for, and for how long.
type waitNotice struct {
	// readOp returns nil if the op cannot be read.
	readOp func(context.Context) *api.Op
	// before describes the wait while the op is unknown; "" reports nothing.
	before string
	// otherwise follows before and names where to look.
	otherwise string
	say       func(line string)

	last   string
	lastAt time.Time
	step   string
	since  time.Time
}

func (n *waitNotice) run(ctx context.Context) {
	n.since = time.Now()
	for pause := noticeAfter; retry.Sleep(ctx, pause) == nil; pause = noticePoll {
		op := n.readOp(ctx)
		if ctx.Err() == nil {
			n.update(op, time.Now())
		}
	}
}

// update reports the reason of the op's wait, if it is new, or noticeRepeat after its last report.
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

func waitReason(op *api.Op) string {
	switch op.WaitingFor {
	case "registry":
		return "the registry, which does not answer"
	case "hypervisor":
		return "libvirt, which does not answer"
	case "processes":
		return "volferryd-processes, which does not report the open files of guests (`systemctl status volferryd-processes.socket volferryd-processes.service`)"
	case "storage":
		return "the storage, which does not answer"
	case "wake":
		return "the guest to run or to be off: it is asleep or has crashed (virsh dompmwakeup; reset, then resume; or destroy)"
	case "backup":
		return "the end of a backup of the guest's disk, which another program has begun (virsh domjobabort ends it)"
	case "resume":
		return "libvirt to resume the guest, which is paused; `volferryctl status` shows why it does not"
	case "guest":
		return "the guest, which still has the disk"
	case "turn":
		if op.Behind != "" {
			return "operation " + op.Behind + ", which was requested before"
		}
		return "another operation, which was requested before"
	case "":
		return stepWaitReasons[op.Step]
	}
	return op.WaitingFor
}

// stepWaitReasons are the steps that wait for a guest, with the guest's expected action.
var stepWaitReasons = map[string]string{
	"power_off":   "the guest to shut down",
	"stop":        "the guest to shut down",
	"detach_live": "the guest to release the disk",
}

// startWaitNotice reports, from noticeAfter until stop is called, what the op waits for, or
// ifUnknown while the op is unknown or opID empty.
func (s *Session) startWaitNotice(ctx context.Context, say func(line string), opID, ifUnknown string) (stop func()) {
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
		before:    ifUnknown,
		otherwise: s.whyNoAnswer(),
		say:       say,
	}
	return n.start(ctx)
}

// startCheckNotice is startWaitNotice for doctor's long checks: it reports whether the daemon
// answers meanwhile.
func (s *Session) startCheckNotice(ctx context.Context, say func(line string)) (stop func()) {
	if s.Quiet || s.Progress == ProgressNone {
		return func() {}
	}
	n := waitNotice{say: say}
	n.readOp = func(ctx context.Context) *api.Op {
		n.before, n.otherwise = s.answer(), s.whyNoAnswer()
		route := routes.ShowRegistryVersion // both programs have it
		if err := s.Client.Do(ctx, route.Method, route.PathOf(), nil, nil, client.Within(noticePoll)); err == nil {
			n.before, n.otherwise = "the checks of this host, which "+s.program()+" is still making", "; Ctrl-C ends the waiting"
		}
		return nil
	}
	return n.start(ctx)
}

func (n *waitNotice) start(ctx context.Context) (stop func()) {
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

func opFinished(state string) bool {
	return state == api.OpDone || state == api.OpUndone || state == api.OpNeedsOperator
}
