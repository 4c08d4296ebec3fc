// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/power/tape"
	"github.com/volferry/volferry/test/site"
)

// recoverTimeout bounds a recovery: there is no guest to wait for.
const recoverTimeout = time.Minute

// recoverAfter boots the host after a cut, has the daemon end the move, or ends it as its
// user would, and looks at what is there.
func (h *host) recoverAfter(t *testing.T, r *recording, p cutPoint, loss tape.Loss) error {
	t.Helper()
	if err := h.cut(p, loss, true); err != nil {
		t.Fatal(err)
	}
	err := h.boot(t.Context())
	if err == nil {
		err = h.endMove(t.Context(), r)
	}
	if err == nil {
		err = h.atRest(t.Context(), r, p.at)
	}
	if err != nil && h.Host != nil {
		err = fmt.Errorf("%w\n%s", err, site.Tails(h.Log()))
	}
	must(t, h.powerOff())
	return err
}

// endMove has the move come to its end. Where it rests in the middle, as one in steps does, it is
// ended as it was in the recording.
func (h *host) endMove(ctx context.Context, r *recording) error {
	ctx, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	for asked := map[string]bool{}; ; {
		m, err := h.migration(ctx)
		if err != nil {
			return err
		}
		if m == nil || m.State == api.MigrationCompleted || m.State == api.MigrationCancelled {
			return nil
		}
		if m.Error != nil && m.StoppedAt != nil {
			return fmt.Errorf("the move stopped as %s, and says %s: %s", m.State, m.Error.Code, m.Error.Message)
		}
		var next []string
		switch {
		case m.Composite:
		case m.State == api.MigrationStarted && r.end == "complete":
			next = []string{"migration", "copy", m.SrcAttachmentID}
		case m.State == api.MigrationStarted, m.State == api.MigrationCopied:
			next = endArgs(*m, r.end)
		}
		if next != nil && !asked[next[1]] {
			asked[next[1]] = true
			if _, err := h.Ctl(ctx, next...); err != nil {
				return err
			}
			continue
		}
		if err := sleep(ctx); err != nil {
			return fmt.Errorf("the move is still %s: %+v", m.State, m)
		}
	}
}

// migration is the one that there is, or nil.
func (h *host) migration(ctx context.Context) (*api.Migration, error) {
	all, err := site.Get[[]api.Migration](ctx, h.Caller, "migrations", "migration", "list", "--all")
	if err != nil || len(all) == 0 {
		return nil, err
	}
	if len(all) > 1 {
		return nil, fmt.Errorf("there are %d migrations", len(all))
	}
	return &all[0], nil
}

// atRest claims that nothing of a move is left, that registry, definition and disk agree, and that
// the volume has what was flushed.
func (h *host) atRest(ctx context.Context, r *recording, at time.Time) error {
	v, err := site.Get[api.Volume](ctx, h.Caller, "volume", "volume", "show", r.volume)
	if err != nil {
		return err
	}
	if v.MigrationID != "" {
		return fmt.Errorf("the volume is not at rest: %+v", v)
	}
	var errs []error
	if r.instance != "" {
		chain, err := h.chain(ctx, r.instance)
		if err != nil {
			return err
		}
		if len(chain) != 1+len(v.Location.Backing.Images()) || chain[0].path != v.Location.Path {
			errs = append(errs, fmt.Errorf("the registry has it at %s, and the definition names %v", v.Location.Path, chain))
		}
	}
	errs = append(errs, holds(ctx, r, image{v.Location.Path, string(v.Location.Format)}, at))
	for _, dir := range []string{h.overlays(), h.Guards()} {
		left, err := os.ReadDir(dir)
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		if len(left) > 0 {
			errs = append(errs, fmt.Errorf("%s is left in %s", left[0].Name(), filepath.Base(dir)))
		}
	}
	return errors.Join(append(errs, h.images(v.Location.Path, r))...)
}

// images claims that of src and dst those are there that ought to be.
func (h *host) images(volume string, r *recording) error {
	there := []string{}
	for _, path := range []string{r.m.Src.Path, r.m.Dst.Path} {
		if _, err := os.Stat(path); err == nil {
			there = append(there, path)
		}
	}
	want := []string{volume}
	if volume == r.m.Dst.Path && !r.m.DeleteSource {
		want = []string{r.m.Src.Path, volume}
	}
	if !slices.Equal(there, want) {
		return fmt.Errorf("the images %v are there, and it should be %v", there, want)
	}
	return nil
}

// sleep is until it is looked at again.
func sleep(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(50 * time.Millisecond):
		return nil
	}
}
