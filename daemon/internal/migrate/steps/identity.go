// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/internal/api"
)

// mayWriteDst is called right before the first byte is written to dst, and each time before
// a copy goes on: since preflight a domain may name dst, or another file may be at its path.
// It returns the fingerprint that dst must have, empty if it is not known.
func (e *Env) mayWriteDst(ctx context.Context, s *Spec) (string, error) {
	if err := e.dstUnchanged(ctx, s); err != nil {
		return "", err
	}
	if err := e.CheckFree(ctx, s.Dst.Path, location.Self{MigrationID: s.MigrationID}); err != nil {
		return "", e.hvError(e.registryError(err))
	}
	return e.dstPrint(ctx, s)
}

// mayMirrorToDst is mayWriteDst for a mirror. A mirror that writes already is not checked
// again.
func (e *Env) mayMirrorToDst(ctx context.Context, s *Spec) error {
	disk, err := e.readDisk(ctx, s)
	if err != nil || disk.mirror != nil {
		return err
	}
	_, err = e.mayWriteDst(ctx, s)
	return err
}

// dstUnchanged refuses a dst that is not the image that the migration made, or that
// preflight saw.
func (e *Env) dstUnchanged(ctx context.Context, s *Spec) error {
	want, err := e.dstPrint(ctx, s)
	if err != nil || want == "" {
		return err
	}
	now, err := e.images.Fingerprint(ctx, s.Dst.Path)
	if errors.Is(err, image.ErrAbsent) || err == nil && now != want {
		return dstReplaced(s.Dst.Path)
	}
	return err
}

// dstPrint is the fingerprint that dst must have, empty if nobody knows it: a tool that
// makes an external copy may replace the file (rsync renames).
func (e *Env) dstPrint(ctx context.Context, s *Spec) (string, error) {
	if s.ExternalCopy {
		return "", nil
	}
	if !s.CreateDst {
		return s.DstPrint, nil
	}
	note, err := e.history.Dst(ctx, s)
	return note.Print, err
}

func dstReplaced(path string) *api.Error {
	return api.Errorf(api.CodeDstInUse, "%s was removed, or replaced by another file, since the migration began; nothing is written to it. Cancel the migration, look whose file it is, and migrate again", path)
}

// isSource says whether the image at the path of src is the image that was moved. It is
// true as well if nothing is there any more.
func (e *Env) isSource(ctx context.Context, s *Spec) (bool, error) {
	if s.SrcPrint != "" {
		now, err := e.images.Fingerprint(ctx, s.Src.Path)
		if errors.Is(err, image.ErrAbsent) {
			return true, nil
		}
		if err != nil || now != s.SrcPrint {
			return false, err
		}
	}
	if s.Src.Pool == "" {
		return true, nil
	}
	found, err := e.hv.LookupVolume(ctx, s.Src.Pool, s.Src.Name)
	if errors.Is(err, hv.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return location.SameImage(found.Path, s.Src.Path)
}
