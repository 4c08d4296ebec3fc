// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// A machine's systemd has cgroups of its own: two of them in one would take each
// other's services for theirs.

// cgroupPrefix begins the name of a machine's cgroup, before the pid of the test.
const cgroupPrefix = "volferry-machine-"

// group is the cgroup of one machine, in each hierarchy in which systemd keeps its own.
type group []string

var groups atomic.Int64

// devicesHierarchy is where the first version of cgroups has what keeps devices from
// processes. The second has no hierarchy for that.
const devicesHierarchy = "/sys/fs/cgroup/devices"

// cgroupParents are the cgroups of this process in the hierarchies that a systemd needs:
// the second version's, and where the first version is in use the one named after it and
// that of devices.
func cgroupParents() ([]string, error) {
	const top = "/sys/fs/cgroup"
	unified := top
	if _, err := os.Stat(filepath.Join(top, "unified")); err == nil {
		unified = filepath.Join(top, "unified")
	}
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	var parents []string
	for line := range strings.Lines(string(data)) {
		_, entry, _ := strings.Cut(strings.TrimSpace(line), ":") // the number of the hierarchy
		switch controllers, path, _ := strings.Cut(entry, ":"); controllers {
		case "":
			parents = append(parents, filepath.Join(unified, path))
		case "name=systemd":
			parents = append(parents, filepath.Join(top, "systemd", path))
		case "devices":
			parents = append(parents, filepath.Join(devicesHierarchy, path))
		}
	}
	parents = slices.DeleteFunc(parents, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "cgroup.procs"))
		return err != nil
	})
	if len(parents) == 0 {
		return nil, fmt.Errorf("none is mounted at %s", top)
	}
	return parents, nil
}

// newGroup makes the cgroup of a machine.
func newGroup() (group, error) {
	parents, err := cgroupParents()
	if err != nil {
		return nil, fmt.Errorf("make cgroup: %w", err)
	}
	name := fmt.Sprintf("%s%d-%d", cgroupPrefix, os.Getpid(), groups.Add(1))
	var g group
	for _, parent := range parents {
		dir := filepath.Join(parent, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, fmt.Errorf("make cgroup: %w", errors.Join(err, g.remove()))
		}
		g = append(g, dir)
	}
	return g, nil
}

// enter is a shell command that moves the shell into the cgroup.
func (g group) enter() string {
	var script strings.Builder
	for _, dir := range g {
		fmt.Fprintf(&script, "echo $$ >%s/cgroup.procs\n", dir)
	}
	return script.String()
}

// remove removes the cgroup, whose processes are dead.
func (g group) remove() error {
	var errs []error
	for _, dir := range g {
		errs = append(errs, removeGroup(dir))
	}
	return errors.Join(errs...)
}

// removeGroup removes a cgroup and those below it. The kernel empties them a moment
// after their processes were last seen.
func removeGroup(dir string) error {
	var err error
	poll(context.Background(), time.Minute, func() bool {
		err = tryRemoveGroup(dir)
		return err == nil
	})
	return err
}

func tryRemoveGroup(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, d := range slices.Backward(dirs) {
		if err := os.Remove(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove cgroup: %w", err))
		}
	}
	return errors.Join(errs...)
}

// sweepGroups removes the cgroups of tests that are dead.
func sweepGroups() error {
	parents, err := cgroupParents()
	if err != nil {
		return err
	}
	var errs []error
	for _, parent := range parents {
		dirs, err := filepath.Glob(filepath.Join(parent, cgroupPrefix+"*"))
		errs = append(errs, err)
		for _, dir := range dirs {
			pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), cgroupPrefix), "-")
			if _, err := strconv.Atoi(pid); err != nil {
				continue
			}
			if _, err := os.Stat("/proc/" + pid); errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, removeGroup(dir))
			}
		}
	}
	return errors.Join(errs...)
}
