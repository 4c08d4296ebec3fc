// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/quota"
	"github.com/volferry/volferry/daemon/internal/sandbox"
)

// Quotas returns the limits on the space of a user's file in dir. It omits a user's or group's
// limit that is not below the size of the filesystem.
func (s Storage) Quotas(ctx context.Context, dir string, who hv.ProcessUser) (limits []quota.Limit, err error) {
	found := make(chan []quota.Limit, 1)
	if err := answered("there is a quota in "+dir, func() error {
		is, err := quotasOf(ctx, s.Privileged, dir, who)
		found <- is
		return err
	}); err != nil {
		return nil, err
	}
	return <-found, nil
}

func quotasOf(ctx context.Context, privileged sandbox.Privileged, dir string, who hv.ProcessUser) ([]quota.Limit, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("look whether there is a quota: %w", err)
	}
	defer func() { _ = f.Close() }()
	project, err := quota.ProjectIn(f)
	if err != nil {
		return nil, err
	}
	all, err := privileged.Quotas(ctx, f, quota.Owner{User: who.UID, Group: who.GID, Project: project})
	if err != nil || len(all) == 0 {
		return nil, err
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return nil, fmt.Errorf("look at the filesystem of %s: %w", dir, err)
	}
	var limits []quota.Limit
	for _, l := range all {
		// For a directory of a project, the kernel reports the project's limit as the filesystem's
		// size.
		if size := int64(fs.Blocks) * fs.Bsize; l.Kind == quota.Project || l.Bytes < size { //nolint:gosec // no filesystem is as large
			limits = append(limits, l)
		}
	}
	return limits, nil
}
