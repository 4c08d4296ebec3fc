// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
	"github.com/volferry/volferry/daemon/internal/network"
	"github.com/volferry/volferry/daemon/internal/openfile"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/atomicfile"
)

// CopyEngine implements move.Copier with package copy. Its cursors are files in one directory.
type CopyEngine struct {
	cursors string
	thin    ThinBlockBytes
	network network.Access
	log     *slog.Logger
	// Passphrase returns a LUKS container's passphrase, by the UUID of libvirt's secret, for
	// comparisons of encrypted data.
	Passphrase func(ctx context.Context, secret string) ([]byte, error)
	Files      openfile.Files

	mu        sync.Mutex
	paced     time.Duration // by pacers that have ended
	moved     int64
	offloaded int64
}

// ThinBlockBytes returns the block size of a thin volume if discarded blocks then read as zeros,
// and 0 for other devices.
type ThinBlockBytes func(ctx context.Context, device *os.File) (int64, error)

// NewCopier returns a copier with its cursors in dir. access opens images that are no file or
// device.
func NewCopier(dir string, thin ThinBlockBytes, access network.Access, log *slog.Logger) *CopyEngine {
	return &CopyEngine{cursors: dir, thin: thin, network: access, log: log}
}

func (c *CopyEngine) cursorPath(key string) string {
	return filepath.Join(c.cursors, strings.ReplaceAll(key, "/", "-"))
}

// Copy implements Copier.
func (c *CopyEngine) Copy(ctx context.Context, req move.CopyRequest) (move.CopyResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer cancel()

	opts := req.Options()
	limit := copy.NewLimiter(opts.BandwidthBytesPerSecond)
	spec := copy.Spec{
		Src: copyChain(req.Src, req.SizeBytes), Dst: copyChain(req.Dst, req.SizeBytes), KeepBase: len(req.Dst) > 1,
		Verify: opts.Verify == move.VerifyFull, DstIsZero: req.DstIsZero, Thick: req.Thick, Begins: req.Begins, Offload: req.Offload, Limit: limit, Network: c.network, Files: c.Files, Progress: forwardProgress(req.Progress, noPacing),
	}
	spec.ThinBlockBytes = func(dst *os.File) int64 {
		blockBytes, err := c.thin(ctx, dst)
		if err != nil { // costs only space
			c.log.WarnContext(ctx, "cannot ask whether a destination is thin: its zeros will take space", "path", req.Dst[0].Path, "err", err)
		}
		return blockBytes
	}
	if req.DstPrint != "" {
		spec.IsDst = func(dst *os.File) error {
			now, err := location.FingerprintOf(dst)
			if err == nil && !location.SameImagePrint(req.DstPrint, now) {
				err = seal.DstReplaced(req.Dst[0].Path, req.DstPrint, now)
			}
			return err
		}
	}
	var pacer *copy.GuestPacer
	if req.GuestStats != nil {
		pacer = c.pace(ctx, &spec, &helpers, req.GuestStats, opts.Pace)
		spec.Progress = forwardProgress(req.Progress, func() move.Pacing { return move.PacingOf(pacer.State()) })
		defer func() { c.count(pacer.Paced(), 0) }()
	}
	helpers.Go(func() { followOptions(ctx, limit, pacer, req.Options) })
	defer c.openCursor(&spec, req.Key)()
	res, err := copy.Copy(ctx, spec)
	c.count(0, res.BytesCopied)
	if res.Offloaded {
		c.countOffloaded(res.BytesTotal)
	}
	if mismatch := (*copy.MismatchError)(nil); errors.As(err, &mismatch) {
		// The cursor counts a chunk as copied that differs.
		err = errors.Join(err, atomicfile.Remove(c.cursorPath(req.Key)))
	}
	if err != nil {
		err = copyError(ctx, err)
		if res.Offloaded && api.CodeOf(err) == api.CodeCopyMismatch {
			err = offloadMismatch(err)
		}
		return move.CopyResult{}, err
	}
	return move.CopyResult{
		BytesTotal: res.BytesTotal, BytesCopied: res.BytesCopied, BytesZero: res.BytesZero,
		Cloned: res.Cloned, Offloaded: res.Offloaded, Verified: res.Verified, Digest: res.Digest,
	}, nil
}

func (c *CopyEngine) openCursor(spec *copy.Spec, key string) (closeCursor func()) {
	cursor := copy.NewFileCursor(c.cursorPath(key))
	spec.Cursor = cursor
	return func() {
		if err := cursor.Close(); err != nil {
			c.log.Warn("cannot close a copy's cursor", "err", err)
		}
	}
}

// pace makes a copy yield to the guest that has these disk statistics. The pacer runs in helpers
// until ctx ends.
func (*CopyEngine) pace(ctx context.Context, spec *copy.Spec, helpers *sync.WaitGroup, stats func(context.Context) (*hv.DiskStats, error), pace string) *copy.GuestPacer {
	pacer := copy.NewGuestPacer(GuestLatency(ctx, stats), KeepShare(pace))
	helpers.Go(func() { pacer.Run(ctx) })
	spec.Pace = pacer
	return pacer
}

// GuestLatency returns a reader of the latency of a guest's requests, for a copy that yields to
// the guest.
func GuestLatency(ctx context.Context, stats func(context.Context) (*hv.DiskStats, error)) func() (copy.GuestLatency, bool) {
	return func() (copy.GuestLatency, bool) {
		st, err := stats(ctx)
		if err != nil {
			return copy.GuestLatency{}, false // without statistics of a guest the copy does not yield
		}
		return copy.GuestLatency{
			Reads:   copy.Latency{Requests: st.ReadRequests, Total: st.ReadTime},
			Writes:  copy.Latency{Requests: st.WriteRequests, Total: st.WriteTime},
			Flushes: copy.Latency{Requests: st.FlushRequests, Total: st.FlushTime},
		}, true
	}
}

func (c *CopyEngine) count(paced time.Duration, moved int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paced += paced
	c.moved += moved
}

// CountPaced adds to the total how long a block job has yielded to its guest.
func (c *CopyEngine) CountPaced(paced time.Duration) { c.count(paced, 0) }

// Totals returns, since the daemon's start, how long copies have yielded to guests, how many bytes
// were copied, and how many of these the storage has copied by itself.
func (c *CopyEngine) Totals() (paced time.Duration, copiedBytes, offloadedBytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.paced, c.moved, c.offloaded
}

func (c *CopyEngine) countOffloaded(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offloaded += n
}

const optionsPoll = 200 * time.Millisecond

// KeepShare returns the share of its speed that a copy keeps while the guest's requests are slow.
func KeepShare(pace string) float64 {
	switch pace {
	case api.PaceOff:
		return 1
	case api.PaceFull:
		return 0
	}
	return gentleShare
}

// gentleShare makes a gentle copy take at most twice as long.
const gentleShare = 0.5

func noPacing() move.Pacing { return move.Pacing{} }

// followOptions applies the operator's latest options, until ctx ends. pacer may be nil.
func followOptions(ctx context.Context, limit *copy.Limiter, pacer *copy.GuestPacer, options func() api.CopyOptions) {
	tick := time.NewTicker(optionsPoll)
	defer tick.Stop()
	var now api.CopyOptions // zero: the options may have changed since they were read
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if next := options(); next != now {
				limit.SetBytesPerSecond(next.BandwidthBytesPerSecond)
				if pacer != nil && next.Pace != now.Pace {
					pacer.SetKeepShare(KeepShare(next.Pace))
				}
				now = next
			}
		}
	}
}

func copyImage(img hv.Image, sizeBytes int64) copy.Image {
	return copy.Image{Path: img.Path, Format: img.Format, SizeBytes: sizeBytes, Slice: img.SliceBytes != 0}
}

func copyChain(chain []hv.Image, sizeBytes int64) copy.Image {
	top := copyImage(chain[0], sizeBytes)
	for _, img := range slices.Backward(chain[1:]) {
		top.Backing = &qemuimg.Image{Path: img.Path, Format: img.Format, SliceBytes: img.SliceBytes, Backing: top.Backing}
	}
	return top
}

func forwardProgress(to func(move.Progress), pacing func() move.Pacing) func(copy.Progress) {
	return func(p copy.Progress) {
		to(move.Progress{Phase: string(p.Phase), BytesTotal: p.BytesTotal, BytesDone: p.BytesDone, RateBytesPerSecond: p.RateBytesPerSecond, Pacing: pacing()})
	}
}

// Compare implements Copier.
func (c *CopyEngine) Compare(ctx context.Context, src, dst []hv.Image, sizeBytes int64, progress func(move.Progress)) error {
	spec := copy.Spec{
		Src: copyChain(src, sizeBytes), Dst: copyChain(dst, sizeBytes), Network: c.network, Files: c.Files, Progress: forwardProgress(progress, noPacing),
	}
	if err := c.decrypt(ctx, &spec, src); err != nil {
		return err
	}
	return copyError(ctx, copy.Compare(ctx, spec))
}

// decrypt makes the comparison read an encrypted overlay as the guest sees it. Two LUKS containers
// are compared as they are, with their headers.
func (c *CopyEngine) decrypt(ctx context.Context, spec *copy.Spec, src []hv.Image) (err error) {
	if src[0].LUKSSecret == "" || src[0].Format == string(api.FormatRaw) {
		return nil
	}
	if c.Passphrase == nil {
		return errors.New("nobody gives the values of libvirt's secrets here")
	}
	if spec.Passphrase, err = c.Passphrase(ctx, src[0].LUKSSecret); err != nil {
		return err
	}
	spec.Src.LUKS, spec.Dst.LUKS = true, true
	for below := spec.Src.Backing; below != nil; below = below.Backing {
		below.LUKS = true
	}
	return nil
}

func (c *CopyEngine) updatePath(key string) string { return c.cursorPath(key) + ".update" }

// SetUpdate implements CopyUpdates.
func (c *CopyEngine) SetUpdate(key string, in api.MigrationUpdate) error {
	text, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("keep what was changed of a copy: %w", err)
	}
	return atomicfile.Write(c.updatePath(key), text, 0o600)
}

// Update implements CopyUpdates.
func (c *CopyEngine) Update(key string) (api.MigrationUpdate, error) {
	text, err := os.ReadFile(c.updatePath(key))
	if errors.Is(err, os.ErrNotExist) {
		return api.MigrationUpdate{}, nil
	}
	if err != nil {
		return api.MigrationUpdate{}, err
	}
	var in api.MigrationUpdate
	if err := json.Unmarshal(text, &in); err != nil {
		return api.MigrationUpdate{}, fmt.Errorf("read what was changed of a copy: %w", err)
	}
	return in, nil
}

// Unanswered implements Copier.
func (c *CopyEngine) Unanswered(key string) (bool, error) {
	return copy.Unanswered(copy.NewFileCursor(c.cursorPath(key)))
}

// Restart implements Copier.
func (c *CopyEngine) Restart(key string) (err error) {
	cursor := copy.NewFileCursor(c.cursorPath(key))
	defer func() { err = errors.Join(err, cursor.Close()) }()
	keep, err := copy.Restart(cursor)
	if err == nil && !keep {
		err = atomicfile.Remove(c.cursorPath(key))
	}
	return errors.Join(err, atomicfile.Remove(c.updatePath(key)))
}

func offloadMismatch(err error) error {
	var e *api.Error
	if !errors.As(err, &e) {
		return err
	}
	return &api.Error{
		Code: e.Code, Details: e.Details,
		Message: e.Message + `. The storage has made this copy; without copy = "on" for its pool in volferryd.toml Volferry copies by itself`,
	}
}

// Forget implements Copier.
func (c *CopyEngine) Forget(_ context.Context, key string) error {
	return errors.Join(atomicfile.Remove(c.cursorPath(key)), atomicfile.Remove(c.updatePath(key)))
}

func copyError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var (
		mismatch *copy.MismatchError
		size     *copy.SizeError
		image    *copy.ImageError
		open     *copy.UnansweredError
		refused  *api.Error
	)
	switch {
	case errors.As(err, &open):
		return api.Errorf(api.CodeHypervisorUnavailable, "%v; nobody is given that volume before it has answered: run the copy again, which asks for the same", open)
	case errors.Is(err, hv.ErrUnavailable): // libvirt has the key of the cluster
		return request.AwaitHypervisor(err)
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &mismatch):
		return api.Errorf(api.CodeCopyMismatch, "the copy is not equal to its source: %v", mismatch).With("offset", mismatch.Offset)
	case errors.As(err, &size):
		return api.Errorf(api.CodeSizeMismatch, "%v", size)
	case errors.As(err, &image):
		return api.Errorf(api.CodeUnsupportedDisk, "%v", image)
	case errors.Is(err, copy.ErrInUse):
		return api.Errorf(api.CodeDstInUse, "%v", err)
	case atomicfile.IsFull(err):
		return api.Errorf(api.CodeNoSpace, "%v; make room and run the copy again, it goes on where it stopped", err)
	case IsIOError(err):
		return api.Errorf(api.CodeIOError, "%v; mend the storage and run the copy again, it goes on where it stopped", err)
	}
	return api.Errorf(api.CodeInternal, "%v; the copy goes on where it stopped when it is run again", err)
}

// IsIOError reports whether err is an error that Linux makes of errors of devices and file servers
// (blk_errors in block/blk-core.c, nfs_stat_to_errno).
func IsIOError(err error) bool {
	return slices.ContainsFunc([]error{
		syscall.EIO, syscall.EREMOTEIO, syscall.ENOLINK, syscall.ENODATA, syscall.EILSEQ, syscall.ETIMEDOUT, syscall.ESTALE,
	}, func(e error) bool { return errors.Is(err, e) })
}
