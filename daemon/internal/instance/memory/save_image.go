// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/atomicfile"
)

// The name of an unfinished save image (a part) ends with partSuffix and the id of the host's
// boot. A part of an earlier boot may be incomplete; a file with the name of a save image is
// complete and durable.
const partSuffix = ".part."

// SaveImageExists reports whether the save image exists. After an error that is unknown.
func SaveImageExists(in *PauseInput) (bool, error) { return fileExists(in.Memory) }

func fileExists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (e *Env) partPath(in *PauseInput) string { return in.Memory + partSuffix + e.cfg.BootID }

func partPaths(in *PauseInput) ([]string, error) {
	dir, name := filepath.Split(in.Memory)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("look for the saved memory of instance %s: %w", in.InstanceName, err)
	}
	var parts []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), name+partSuffix) {
			parts = append(parts, filepath.Join(dir, e.Name()))
		}
	}
	return parts, nil
}

// unprovenSuffix replaces the boot's id in a part's name during the flush. If the daemon dies
// then, the part is not used.
const unprovenSuffix = "not-stored"

// commitSaveImage flushes this boot's complete part, and renames it to the save image. During the
// flush the part has no boot id in its name, because the kernel reports a lost write only once:
// another flush, after the daemon's death or a failed rename, would prove nothing.
func (e *Env) commitSaveImage(ctx context.Context, in *PauseInput) error {
	part, unproven := e.partPath(in), in.Memory+partSuffix+unprovenSuffix
	err := os.Rename(part, unproven)
	if err == nil {
		err = e.images.Flush(ctx, unproven)
		var lost *image.NotStoredError
		switch {
		case errors.As(err, &lost):
			return api.Errorf(api.CodeIOError, "keep the saved memory of instance %s: %v; it is stopped now, as after a power cut, and has nothing but that memory lost: mend the storage of %s, and start it", in.InstanceName, err, e.cfg.SaveDir)
		case err != nil: // the flush was not tried
			err = errors.Join(err, os.Rename(unproven, part))
		default:
			err = os.Rename(unproven, in.Memory)
		}
	}
	if err == nil {
		err = atomicfile.SyncDir(e.cfg.SaveDir)
	}
	if err != nil {
		return fmt.Errorf("keep the saved memory of instance %s: %w", in.InstanceName, err)
	}
	return nil
}

// recoverSaveImage cleans up after an interrupted save of an instance that is off: a part that
// libvirt completed in this boot becomes the save image, and other parts are removed. Errors are
// typed for the runner.
func (e *Env) recoverSaveImage(ctx context.Context, in *PauseInput) error {
	there, err := fileExists(e.partPath(in))
	if err != nil {
		return err
	}
	if there {
		_, err := e.saves.SavedDisks(ctx, in.InstanceID, e.partPath(in))
		if err == nil {
			err = e.commitSaveImage(ctx, in)
		}
		if err != nil && !errors.Is(err, hv.ErrIncomplete) {
			return request.HV(err)
		}
	}
	return removeParts(in)
}

func removeParts(in *PauseInput) error {
	parts, err := partPaths(in)
	if err != nil {
		return err
	}
	for _, part := range parts {
		if err := atomicfile.Remove(part); err != nil {
			return fmt.Errorf("remove what was written of the memory of instance %s: %w", in.InstanceName, err)
		}
	}
	return nil
}

// removeSaveImage durably removes the save image and its parts.
func removeSaveImage(in *PauseInput) error {
	if err := removeParts(in); err != nil {
		return err
	}
	if err := atomicfile.Remove(in.Memory); err != nil {
		return fmt.Errorf("remove the saved memory of instance %s: %w", in.InstanceName, err)
	}
	return nil
}
