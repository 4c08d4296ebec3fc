// SPDX-License-Identifier: Apache-2.0

package location

import (
	"context"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

const maxPathBytes = 4095

// CheckPath refuses paths that libvirt or QEMU could interpret differently (invalid_argument), and
// paths that CheckPlace or CheckOpen refuses. The directory must exist.
func (r Rules) CheckPath(ctx context.Context, path string) error {
	if medium.Of(path).Path {
		if err := checkText(path); err != nil {
			return err
		}
	}
	return r.checkPlaced(ctx, path)
}

func checkText(path string) error {
	bad := func(why string) error {
		return api.Errorf(api.CodeInvalidArgument, "path %.120q %s", path, why)
	}
	switch {
	case len(path) > maxPathBytes:
		return bad("is too long")
	case !utf8.ValidString(path) || strings.ContainsFunc(path, unicode.IsControl):
		return bad("has characters that no path of a volume may have")
	case !filepath.IsAbs(path):
		return bad("is not absolute")
	case filepath.Clean(path) != path:
		return bad("is not clean: say " + filepath.Clean(path))
	}
	return nil
}

// checkPlaced refuses a path in one of Volferry's own directories, and paths that CheckPlace or
// CheckOpen refuses. If CheckOpen refuses a link, the error names the link, and does not explain
// how to permit the link's target.
func (r Rules) checkPlaced(ctx context.Context, path string) error {
	if err := r.checkNotOwn(path); err != nil {
		return err
	}
	placed, found := r.CheckPlace(ctx, path), r.CheckOpen(path)
	if placed != nil && api.CodeOf(found) != api.CodePermissionDenied {
		return placed
	}
	return found
}

func (r Rules) checkNotOwn(path string) error {
	if !medium.Of(path).Path {
		return nil
	}
	real, err := resolve(path)
	if err != nil {
		return nil //nolint:nilerr // CheckPlace says so, or CheckPool has
	}
	for _, dir := range r.Own {
		if within(real, dir) {
			return api.Errorf(api.CodeInvalidArgument, "path %.120q is in %s, which is Volferry's own", path, dir)
		}
	}
	return nil
}

// CheckPlaces makes the checks of checkPlaced for the image at a location and for its base images:
// the header of an image could name any file of the host.
func (r Rules) CheckPlaces(ctx context.Context, l api.Location) error {
	if err := r.checkPlaced(ctx, l.Path); err != nil {
		return err
	}
	return r.checkBases(ctx, l)
}

func (r Rules) checkBases(ctx context.Context, l api.Location) error {
	for _, b := range l.Backing.Images() {
		if err := r.checkPlaced(ctx, b.Path); err != nil {
			return linkedTo(l.Path, b.Path, "is over a base image", err)
		}
	}
	return nil
}

// CheckLocation refuses a location that no volume of this host may have. It checks the pool
// (CheckPool) or the path (CheckPath), and the base images. verdict begins CheckPool's message, as
// in "cannot attach volume x". Errors are *api.Error or the hypervisor's.
func (r Rules) CheckLocation(ctx context.Context, h PoolVolumes, l api.Location, verdict string) error {
	check := r.CheckPath
	if l.Pool != "" {
		check = func(ctx context.Context, path string) error {
			if err := CheckPool(ctx, h, l, verdict); err != nil {
				return err
			}
			if err := r.checkNotOwn(path); err != nil {
				return err
			}
			return r.CheckOpen(path)
		}
	}
	if err := check(ctx, l.Path); err != nil {
		return err
	}
	return r.checkBases(ctx, l)
}

// CheckImages calls CheckOpen for the image at a location and for its base images.
func (r Rules) CheckImages(l api.Location) error {
	err := r.CheckOpen(l.Path)
	for _, b := range l.Backing.Images() {
		if err == nil {
			err = r.CheckOpen(b.Path)
		}
	}
	return err
}
