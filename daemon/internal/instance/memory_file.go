// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/atomicfile"
)

// The file of an instance's RAM is whole and durable, or it is not there. What is
// written is a part of it, with the id of this boot of the host in its name: of one
// that an earlier boot has left nobody can tell whether it is whole.
const partSuffix = ".part."

// memoryPath is where the RAM of an instance is kept for a migration.
func (m *machine) memoryPath(instanceID, migrationID string) string {
	return filepath.Join(m.saveDir, instanceID+"."+migrationID+".ram")
}

// memoryThere says whether the RAM file is there. An error means that nobody can
// tell.
func memoryThere(in *pauseInput) (bool, error) { return fileThere(in.Memory) }

func fileThere(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// part is what is written of the RAM file in this boot.
func (m *machine) part(in *pauseInput) string { return in.Memory + partSuffix + m.boot }

// partsOf are the parts of the RAM file, of all boots.
func partsOf(in *pauseInput) ([]string, error) {
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

// keepMemory gives the part of this boot, which is whole, the name of the RAM file,
// once it is on stable storage.
func (m *machine) keepMemory(in *pauseInput) error {
	f, err := os.Open(m.part(in))
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err == nil {
		err = os.Rename(m.part(in), in.Memory)
	}
	if err == nil {
		err = atomicfile.SyncDir(m.saveDir)
	}
	if err != nil {
		return fmt.Errorf("keep the saved memory of instance %s: %w", in.InstanceName, err)
	}
	return nil
}

// settleMemory brings the file of an instance that is off to what it may be, after
// its save was cut off: what libvirt has finished in this boot is kept, and anything
// else is no RAM of anybody's. Its errors are typed for the runner.
func (m *machine) settleMemory(ctx context.Context, in *pauseInput) error {
	there, err := fileThere(m.part(in))
	if err != nil {
		return err
	}
	if there {
		_, err := m.HV.SavedDisks(ctx, in.InstanceID, m.part(in))
		if err == nil {
			err = m.keepMemory(in)
		}
		if err != nil && !errors.Is(err, hv.ErrIncomplete) {
			return request.HV(err)
		}
	}
	return removeParts(in)
}

func removeParts(in *pauseInput) error {
	parts, err := partsOf(in)
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

// removeMemory removes the RAM file, durably, of an instance that has a process: its
// RAM is there.
func removeMemory(in *pauseInput) error {
	if err := removeParts(in); err != nil {
		return err
	}
	if err := atomicfile.Remove(in.Memory); err != nil {
		return fmt.Errorf("remove the saved memory of instance %s: %w", in.InstanceName, err)
	}
	return nil
}
