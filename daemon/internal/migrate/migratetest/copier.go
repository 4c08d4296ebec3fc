// SPDX-License-Identifier: Apache-2.0

package migratetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// FakeCopier copies in the world's images. A non-nil Gate blocks copies until it is closed.
type FakeCopier struct {
	fake *hvtest.Fake
	Gate chan struct{}
	// OnCompare is called at each comparison. CompareGate, if not nil, blocks it. Differs makes it
	// find a difference.
	OnCompare   func()
	CompareGate chan struct{}
	Differs     bool

	Mu   sync.Mutex
	Done map[string]bool
	// reached has the progress by key. The next copy continues there.
	reached map[string]int64
	// Asked has the keys of copies with an unanswered request to the storage.
	Asked   map[string]bool
	Updates map[string]api.MigrationUpdate
	Last    move.CopyRequest
	Kept    map[string]move.KeptUnits
}

// Copy implements move.Copier.
func (c *FakeCopier) Copy(ctx context.Context, req move.CopyRequest) (move.CopyResult, error) {
	if req.Begins != nil {
		if err := req.Begins(); err != nil {
			return move.CopyResult{}, err
		}
	}
	half := req.SizeBytes / 2
	req.Progress(move.Progress{Phase: "copy", BytesTotal: req.SizeBytes, BytesDone: c.reach(req.Key, half)})
	if c.Gate != nil {
		select {
		case <-c.Gate:
		case <-ctx.Done():
			return move.CopyResult{}, context.Cause(ctx)
		}
	}
	req.Progress(move.Progress{Phase: "copy", BytesTotal: req.SizeBytes, BytesDone: half})
	var full *fs.PathError
	offloaded, err := c.offload(ctx, req)
	if err != nil {
		return move.CopyResult{}, err
	}
	if !offloaded {
		err = c.fake.CopyImage(req.Src[0], req.Dst[0])
	}
	switch {
	case errors.As(err, &full) && full.Op == "write":
		return move.CopyResult{}, api.Errorf(api.CodeNoSpace, "%v", err) // as the engine does
	case err != nil:
		return move.CopyResult{}, err
	}
	verified := req.Options().Verify == move.VerifyFull
	c.Mu.Lock()
	defer c.Mu.Unlock()
	c.Done[req.Key], c.Last = true, req
	return move.CopyResult{BytesTotal: req.SizeBytes, BytesCopied: req.SizeBytes, Offloaded: offloaded, Verified: verified}, nil
}

func (c *FakeCopier) reach(key string, to int64) (before int64) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	if c.reached == nil {
		c.reached = map[string]int64{}
	}
	before, c.reached[key] = c.reached[key], to
	return before
}

func (c *FakeCopier) offload(ctx context.Context, req move.CopyRequest) (bool, error) {
	if req.Offload == nil || !req.Offload.Offered {
		return false, nil
	}
	half := req.SizeBytes / 2
	for off := int64(0); off < req.SizeBytes; off += half {
		c.setAsked(req.Key, true)
		_, answered, err := req.Offload.Ask(ctx, off, half)
		if !answered {
			return false, api.Errorf(api.CodeHypervisorUnavailable, "%v", err) // as the engine does
		}
		c.setAsked(req.Key, false)
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			req.Offload.Refused(err)
			return false, nil
		case err != nil:
			return false, err
		}
	}
	return true, nil
}

func (c *FakeCopier) setAsked(key string, is bool) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	c.Asked[key] = is
}

// Unanswered implements move.Copier.
func (c *FakeCopier) Unanswered(key string) (bool, error) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	return c.Asked[key], nil
}

// Compare implements move.Copier.
func (c *FakeCopier) Compare(ctx context.Context, src, dst []hv.Image, _ int64, _ func(move.Progress)) error {
	if c.OnCompare != nil {
		c.OnCompare()
	}
	if src[0].Path == dst[0].Path {
		return fmt.Errorf("%s is to be compared with itself", src[0].Path)
	}
	if c.CompareGate != nil {
		select {
		case <-c.CompareGate:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if c.Differs {
		return api.Errorf(api.CodeCopyMismatch, "the copy differs").With("offset", 0)
	}
	read := func(chain []hv.Image) (map[int64]uint64, error) { return c.fake.ReadImage(chain[0].Path) }
	if src[0].LUKSSecret != "" && src[0].Format != hvtest.Raw {
		read = c.fake.Read // the guest's view of overlays, the containers themselves
	}
	a, err := read(src)
	if err != nil {
		return err
	}
	b, err := read(dst)
	if err != nil {
		return err
	}
	for block := range int64(Blocks) + hvtest.HeaderBytes/hvtest.BlockSize {
		if a[block] != b[block] {
			return api.Errorf(api.CodeCopyMismatch, "the copy differs").With("offset", block*hvtest.BlockSize)
		}
	}
	return nil
}

// Restart implements move.Copier.
func (c *FakeCopier) Restart(key string) error {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	delete(c.Done, key)
	delete(c.Updates, key)
	return nil
}

// Forget implements move.Copier.
func (c *FakeCopier) Forget(_ context.Context, key string) error {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	delete(c.Done, key)
	delete(c.Asked, key)
	delete(c.Updates, key)
	return nil
}

// SetUpdate implements move.CopyUpdates.
func (c *FakeCopier) SetUpdate(key string, in api.MigrationUpdate) error {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	c.Updates[key] = in
	return nil
}

// Update implements move.CopyUpdates.
func (c *FakeCopier) Update(key string) (api.MigrationUpdate, error) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	return c.Updates[key], nil
}

// CopyUnits implements move.UnitsCopier.
func (c *FakeCopier) CopyUnits(_ context.Context, req move.UnitsRequest) (copy.UnitsResult, error) {
	var res copy.UnitsResult
	ranges := slices.Clone(req.Ranges)
	for _, d := range req.Again {
		ranges = append(ranges, d.Range)
	}
	for _, r := range ranges {
		if err := c.fake.CopyBlocks(req.Src.Path, req.Dst.Path, r.Offset/hvtest.BlockSize, r.Bytes/hvtest.BlockSize); err != nil {
			return res, err
		}
		res.CopiedBytes += r.Bytes
	}
	return res, nil
}

// KeepUnits implements move.UnitsCopier.
func (c *FakeCopier) KeepUnits(key string, kept move.KeptUnits) error {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	c.Kept[key] = kept
	return nil
}

// KeptUnits implements move.UnitsCopier.
func (c *FakeCopier) KeptUnits(key string) (move.KeptUnits, error) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	kept, ok := c.Kept[key]
	if !ok {
		return kept, fs.ErrNotExist
	}
	return kept, nil
}

// ForgetUnits implements move.UnitsCopier.
func (c *FakeCopier) ForgetUnits(prefix string) error {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	maps.DeleteFunc(c.Kept, func(key string, _ move.KeptUnits) bool { return strings.HasPrefix(key, prefix) })
	return nil
}
