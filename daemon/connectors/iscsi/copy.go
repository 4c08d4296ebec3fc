// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"

	"github.com/volferry/volferry/daemon/connectors/internal/target"
	"github.com/volferry/volferry/daemon/internal/connector"
)

// copyCommand sends EXTENDED COPY (LID1). It is part of sg3-utils.
const copyCommand = "sg_xcopy"

func canCopy() bool {
	_, err := exec.LookPath(copyCommand)
	return err == nil
}

// The exit statuses of sg_xcopy (sg3_utils(8)).
var (
	// saysNo are refusals: an illegal request, an unsupported operation code, a copy aborted by
	// the target, unsupported operating parameters of copies.
	saysNo = []int{5, 9, 10, 72}
	// saysAgain are a unit attention and an aborted command.
	saysAgain = []int{6, 11}
	// saysDone are other errors, after which the target does not work any more: not ready, a
	// medium error, a protected unit, an address that does not exist, a reservation; and a command
	// that was not sent.
	saysDone = []int{1, 2, 3, 6, 7, 11, 15, 17, 18, 22, 24, 31}
	// saysBusy are statuses of a target that asks for a later attempt.
	saysBusy = []int{26, 27}
)

// errUnclear: the session was lost, or the kernel gave up on the command. The connector then does
// not answer.
var errUnclear = errors.New("the target has not answered")

const copyTries = 3

// copy makes the target copy between two of its units. No copying continues after copy returns:
// the command ends with the target's work, and holds the lock until then, even if this process
// dies.
func (i iscsi) copy(ctx context.Context, p place, in connector.Request) (connector.Answer, error) {
	src, srcIs := unitOf(in.Source.Volume)
	dst, dstIs := unitOf(in.Volume)
	if !srcIs || !dstIs {
		return connector.Answer{}, connector.Errorf(connector.CodeNotFound, "target %s has no units %s and %s", p.iqn, in.Source.Volume, in.Volume)
	}
	if src.wwid == dst.wwid {
		return connector.Answer{}, connector.Errorf(connector.CodeInvalid, "both are the unit %s", src.wwid)
	}
	lock, err := target.TakeCopy(i.state, "iscsi", dst.wwid)
	if err != nil {
		return connector.Answer{}, err
	}
	defer func() { _ = lock.Close() }()
	sessions, err := readSessions(i.Devices, p)
	if err != nil {
		return connector.Answer{}, err
	}
	for u, identity := range map[unit]string{src: in.Source.Identity, dst: in.Identity} {
		if err := i.isThe(p, u, sessions, identity, in.Source.SizeBytes); err != nil {
			return connector.Answer{}, err
		}
	}
	from, to, err := i.copyPaths(p, sessions, src, dst)
	if err != nil {
		return connector.Answer{}, err
	}
	args, err := i.copyArgs(from, to, in)
	if err != nil {
		return connector.Answer{}, err
	}
	for try := 1; ; try++ {
		_, err := i.runHolding(ctx, lock, args...)
		switch {
		case err == nil:
			return connector.Answer{CopiedToBytes: in.OffsetBytes + in.LengthBytes}, nil
		case exitsWithOneOf(err, saysNo), errors.Is(err, exec.ErrNotFound):
			return connector.Answer{}, connector.Errorf(connector.CodeUnsupported, "target %s does not copy between these units: %v", p.iqn, err)
		case exitsWithOneOf(err, saysBusy):
			return connector.Answer{}, connector.Errorf(connector.CodeBusy, "%v", err)
		case exitsWithOneOf(err, saysAgain) && try < copyTries:
		case exitsWithOneOf(err, saysDone):
			return connector.Answer{}, err
		default:
			return connector.Answer{}, fmt.Errorf("%w: %w", errUnclear, err)
		}
		note(err)
	}
}

// isThe refuses a unit that is not connected, not the expected device, or of another size.
func (i iscsi) isThe(p place, u unit, sessions []session, identity string, sizeBytes int64) error {
	found, err := i.find(u, sessions)
	switch {
	case err != nil:
		return err
	case found == nil:
		return connector.Errorf(connector.CodeNotConnected, "%s of target %s is not connected", u.name, p.iqn)
	case found.identity != identity:
		return connector.Errorf(connector.CodeChanged, "%s is %s, and not %.200s", u.name, found.identity, identity)
	case found.sizeBytes != sizeBytes:
		return connector.Errorf(connector.CodeInvalid, "%s has %d bytes, and not %d", u.name, found.sizeBytes, sizeBytes)
	}
	return nil
}

func (i iscsi) copyPaths(p place, sessions []session, src, dst unit) (from, to string, err error) {
	works := func(d disk) bool { return d.running }
	for _, s := range sessions {
		a, b := s.pathsTo(src), s.pathsTo(dst)
		m, n := slices.IndexFunc(a, works), slices.IndexFunc(b, works)
		if m >= 0 && n >= 0 {
			return a[m].name, b[n].name, nil
		}
	}
	return "", "", connector.Errorf(connector.CodeUnavailable, "no session with target %s has a path to both units that works", p.iqn)
}

// copyArgs returns the command for a range. The command itself limits each SCSI command to the
// target's maximum.
func (i iscsi) copyArgs(from, to string, in connector.Request) ([]string, error) {
	block, err := i.blockBytes(from)
	if err != nil {
		return nil, err
	}
	other, err := i.blockBytes(to)
	switch {
	case err != nil:
		return nil, err
	case block != other:
		return nil, connector.Errorf(connector.CodeUnsupported, "the units have blocks of %d and %d bytes", block, other)
	case in.OffsetBytes%block != 0 || in.LengthBytes%block != 0:
		return nil, connector.Errorf(connector.CodeInvalid, "%d bytes from %d on are no whole blocks of %d", in.LengthBytes, in.OffsetBytes, block)
	}
	at := strconv.FormatInt(in.OffsetBytes/block, 10)
	return []string{
		copyCommand, "if=" + i.Path(from), "of=" + i.Path(to), fmt.Sprintf("bs=%d", block),
		"skip=" + at, "seek=" + at, fmt.Sprintf("count=%d", in.LengthBytes/block),
	}, nil
}

func (i iscsi) blockBytes(disk string) (int64, error) {
	text, err := i.Attribute(disk, "queue/logical_block_size")
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < target.SectorBytes {
		return 0, connector.Errorf(connector.CodeFailed, "the kernel says that %s has blocks of %.40q bytes", disk, text)
	}
	return n, nil
}

// awaitCopy waits until no copy to a volume runs. Until then the volume may not be connected.
func (i iscsi) awaitCopy(volume string) error {
	u, is := unitOf(volume)
	if !is {
		return nil
	}
	lock, err := target.TakeCopy(i.state, "iscsi", u.wwid)
	if err != nil {
		return err
	}
	return lock.Close()
}

func exitsWithOneOf(err error, statuses []int) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && slices.Contains(statuses, exit.ExitCode())
}
