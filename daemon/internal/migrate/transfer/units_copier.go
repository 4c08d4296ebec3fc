// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/atomicfile"
)

// CopyUnits implements UnitsCopier.
func (c *CopyEngine) CopyUnits(ctx context.Context, req move.UnitsRequest) (copy.UnitsResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer cancel()

	spec := copy.UnitsSpec{
		Spec: copy.Spec{
			Src: copyImage(req.Src, req.SizeBytes), Dst: copyImage(req.Dst, req.SizeBytes), Verify: req.Options.Verify != move.VerifyNone,
			Limit: copy.NewLimiter(req.Options.BandwidthBytesPerSecond), Files: c.Files,
		},
		UnitBytes: req.UnitBytes, Ranges: req.Ranges, Again: req.Again, Still: req.Still,
	}
	defer c.openCursor(&spec.Spec, req.Key)()
	if !req.Still { // paused guests wait for the copy
		pacer := c.pace(ctx, &spec.Spec, &helpers, req.GuestStats, req.Options.Pace)
		defer func() { c.count(pacer.Paced(), 0) }()
	}
	res, err := copy.Units(ctx, spec)
	c.count(0, res.CopiedBytes)
	if err != nil {
		return copy.UnitsResult{}, copyError(ctx, err)
	}
	return res, nil
}

// KeepUnits implements UnitsCopier.
func (c *CopyEngine) KeepUnits(key string, kept move.KeptUnits) error {
	text, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	return atomicfile.Write(c.cursorPath(key), text, 0o600)
}

// KeptUnits implements UnitsCopier.
func (c *CopyEngine) KeptUnits(key string) (kept move.KeptUnits, err error) {
	text, err := os.ReadFile(c.cursorPath(key))
	if err != nil {
		return kept, err
	}
	if err := json.Unmarshal(text, &kept); err != nil {
		return kept, fmt.Errorf("read what is to be copied: %w", err)
	}
	return kept, nil
}

// ForgetUnits implements UnitsCopier.
func (c *CopyEngine) ForgetUnits(prefix string) error {
	entries, err := os.ReadDir(c.cursors)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			err = errors.Join(err, atomicfile.Remove(filepath.Join(c.cursors, e.Name())))
		}
	}
	return err
}
