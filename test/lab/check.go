// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/volferry/volferry/test/lab/workload"
)

// Report is what Check found.
type Report struct {
	Acked    int // operations that the guest saw acknowledged
	Found    int // of these, the ones that are there or rightly written over
	Blocks   int // blocks of the volume, all of them read
	Written  int // blocks that hold a record of a writer
	Bad      int // blocks that hold what they must not
	First    string
	badCause map[uint64]bool // acknowledged operations that a bad block misses
}

// Err is nil if the volume holds what it must, and otherwise says what is
// wrong.
func (r *Report) Err() error {
	if r.Bad == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d blocks are wrong, %d of %d acknowledged operations lost; first: %s",
		r.Bad, r.Blocks, r.Acked-r.Found, r.Acked, r.First)
}

// CheckOption changes what Check demands.
type CheckOption func(*checker)

// UnflushedMayBeLost is for a volume whose last user lost power: what it had
// written after its last flush may be there or not, block by block.
func UnflushedMayBeLost() CheckOption {
	return PowerWasCutAt(time.Now())
}

// PowerWasCutAt is for a volume whose user lost power at these times, in their order, and which
// was written to again after: what was acknowledged before and not flushed then may be there or
// not, block by block.
func PowerWasCutAt(cuts ...time.Time) CheckOption {
	return func(c *checker) { c.cuts = cuts }
}

// IsAsOf is for a volume that is as it was at this time, all of it or in parts: what was
// acknowledged after it may be there or not, block by block.
func IsAsOf(at time.Time) CheckOption {
	return func(c *checker) { c.asOf = at }
}

// Check reads the whole volume, which nobody may be writing to, has qemu-img check what is a qcow2
// image, and holds every block against the history: it holds what the last acknowledged operation
// on it left, or what an operation left that came later and was in flight when the guest was last
// heard of; a block that no operation touched holds the initial fill. The error is about reading;
// what is wrong with the content is in the report.
func Check(ctx context.Context, v Volume, h *History, opts ...CheckOption) (*Report, error) {
	c := &checker{history: h}
	for _, opt := range opts {
		opt(c)
	}
	if err := c.checkAcks(); err != nil {
		return nil, fmt.Errorf("check %s: %w", v.Path, err)
	}
	if err := v.checkStructure(ctx); err != nil {
		return nil, err
	}
	path := v.Path
	if v.Format != "raw" || v.LUKS != nil {
		dir, err := os.MkdirTemp("", "vflab-check-")
		if err != nil {
			return nil, fmt.Errorf("check %s: %w", v.Path, err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		path = filepath.Join(dir, "raw")
		args := []string{"-f", v.Format, v.Path}
		if v.LUKS != nil {
			args = append(v.LUKS.object(), "--image-opts", v.LUKS.options(v.Path))
		}
		if _, err := run(ctx, "qemu-img", append(append([]string{"convert", "-O", "raw"}, args...), path)...); err != nil {
			return nil, fmt.Errorf("check %s: %w", v.Path, err)
		}
	}
	r, err := c.read(ctx, path, v.SliceBytes)
	if err != nil {
		return nil, fmt.Errorf("check %s: %w", v.Path, err)
	}
	return r, nil
}

// leaksOnly is the status of qemu-img check for an image with clusters that nothing refers to: a
// death leaves some, and they cost space alone.
const leaksOnly = 3

// checkStructure is what qemu-img says of the tables of a qcow2 image, which nobody has open.
func (v Volume) checkStructure(ctx context.Context) error {
	if v.Format != "qcow2" || v.LUKS != nil {
		return nil
	}
	_, err := run(ctx, "qemu-img", "check", "-q", "-f", v.Format, v.Path)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == leaksOnly {
		return nil
	}
	return err
}

// checker holds one volume against one history.
type checker struct {
	history *History
	cuts    []time.Time // of the power
	asOf    time.Time   // zero is now
	touches map[uint64][]touch
	report  Report
}

// checkAcks makes sure that guest and host speak of the same operations: a
// history that is wrong itself would prove nothing.
func (c *checker) checkAcks() error {
	seen := make(map[uint64]bool, len(c.history.Acks))
	for _, a := range c.history.Acks {
		if want := c.history.Stream.At(a.Op.Seq); a.Op != want {
			return fmt.Errorf("guest acknowledged %+v, but the stream has %+v", a.Op, want)
		}
		if seen[a.Op.Seq] {
			return fmt.Errorf("guest acknowledged operation %d twice", a.Op.Seq)
		}
		seen[a.Op.Seq] = true
	}
	return nil
}

func (c *checker) read(ctx context.Context, path string, sliceBytes int64) (*Report, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var volume io.Reader = f
	if sliceBytes != 0 {
		volume = io.LimitReader(f, sliceBytes)
	}
	limits := c.history.limits()
	if len(c.cuts) == 0 && c.asOf.IsZero() { // else a write that is not there may have been done
		if limits, err = c.history.narrow(f); err != nil {
			return nil, err
		}
	}
	c.touches = c.history.touches(limits, c.cuts, c.asOf)
	c.report = Report{Acked: len(c.history.Acks), badCause: make(map[uint64]bool)}
	chunk := make([]byte, 1<<20)
	var block uint64
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n, err := io.ReadFull(volume, chunk)
		for rest := chunk[:n]; len(rest) >= workload.BlockSize; rest = rest[workload.BlockSize:] {
			if c.history.covers(block) {
				c.block(block, rest[:workload.BlockSize])
			}
			block++
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if want := c.history.volumeBlocks(); block != want {
		return nil, fmt.Errorf("it has %d blocks, want %d", block, want)
	}
	c.report.Blocks = int(block)
	c.report.Found = c.report.Acked - len(c.report.badCause)
	return &c.report, nil
}

// content is one thing that a block may hold: zeroes, or the record with a
// sequence number.
type content struct {
	record bool
	seq    uint64
}

func (c content) String() string {
	switch {
	case !c.record:
		return "zeroes"
	case c.seq == workload.FillSeq:
		return "the initial fill"
	default:
		return fmt.Sprintf("record %d", c.seq)
	}
}

// allowed returns what the block may hold, and the last operation that is
// certain to have changed it, if any. It goes back in time until an operation
// leaves no doubt.
func (c *checker) allowed(block uint64) (may []content, last *workload.Op) {
	touches := c.touches[block]
	for i := len(touches) - 1; i >= 0; i-- {
		t := &touches[i]
		may = append(may, content{record: t.op.Kind == workload.Write, seq: t.op.Seq})
		if t.certain && last == nil {
			last = &t.op
		}
		if t.certain && t.op.Kind != workload.Discard {
			return may, last
		}
	}
	fill := c.history.Fill
	filled := workload.Filled(fill.Seed, block, fill.Percent)
	return append(may, content{record: filled, seq: workload.FillSeq}), last
}

// block judges one block.
func (c *checker) block(number uint64, data []byte) {
	may, last := c.allowed(number)
	if slices.ContainsFunc(may, func(want content) bool { return c.holds(data, number, want) }) {
		if seq, ok := workload.RecordSeq(data); ok && seq != workload.FillSeq {
			c.report.Written++
		}
		return
	}
	c.report.Bad++
	if last != nil {
		c.report.badCause[last.Seq] = true
	}
	if c.report.First == "" {
		var words []string
		for _, want := range may {
			words = append(words, want.String())
		}
		c.report.First = fmt.Sprintf("block %d holds %s, want %s", number,
			workload.Describe(data, c.history.Stream.Seed, number), strings.Join(words, " or "))
	}
}

func (c *checker) holds(data []byte, number uint64, want content) bool {
	switch {
	case !want.record:
		return workload.IsZero(data)
	case want.seq == workload.FillSeq:
		return workload.IsRecord(data, c.history.Fill.Seed, want.seq, number)
	default:
		seq, ok := workload.RecordSeq(data)
		return ok && seq == want.seq && workload.IsRecord(data, c.history.Stream.Seed, want.seq, number)
	}
}
