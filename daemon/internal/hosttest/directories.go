// SPDX-License-Identifier: Apache-2.0

package hosttest

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/quota"
	"github.com/volferry/volferry/internal/api"
)

// FreeBytes returns by how much a file may grow.
func (i *Images) FreeBytes(string) (int64, error) {
	if free := i.Free.Load(); free != 0 {
		return free, nil
	}
	return 1 << 40, nil
}

// Quotas returns Quota.
func (i *Images) Quotas(context.Context, string, hv.ProcessUser) ([]quota.Limit, error) {
	if limit := i.Quota.Load(); limit != nil {
		return []quota.Limit{*limit}, nil
	}
	return nil, nil
}

// InMemory returns Memory.
func (i *Images) InMemory(string) (bool, error) { return i.Memory.Load(), nil }

// Reach refuses paths in Closed.
func (i *Images) Reach(user hv.ProcessUser, dir string) error {
	if dir == i.Closed {
		return &image.ReachError{User: user, Dir: dir, Mode: 0o700}
	}
	return nil
}

// MayOpen refuses images in Shut.
func (i *Images) MayOpen(user hv.ProcessUser, path string) error {
	if _, err := i.Fake.Info(path); err != nil {
		return err
	}
	if i.Shut == path || i.Shut == filepath.Dir(path) {
		return &image.OpenError{User: user, Path: path, Mode: 0o600}
	}
	return nil
}

// TryDirectory refuses needs that a directory in Limits does not meet. It refuses the directory in
// Shut if libvirt would give the image to its user.
func (i *Images) TryDirectory(user hv.ProcessUser, dir string, needs image.Needs) error {
	if i.Shut == dir && user.Given {
		return &image.OpenError{User: user, Path: "what is made in " + dir, Mode: 0o600}
	}
	can, limited := i.Limits[dir]
	if !limited {
		return nil
	}
	var lacks []string
	for words, lack := range map[string]bool{
		"has no hard links": needs.Named && !can.Named, "is not used past the page cache": needs.Direct && !can.Direct,
		"is in memory": needs.Kept && !can.Kept, "holds no such file": needs.FileBytes > can.FileBytes,
	} {
		if lack {
			lacks = append(lacks, words)
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	slices.Sort(lacks)
	return &image.LimitError{Dir: dir, Kind: "exfat", Lacks: lacks}
}

// CheckFileBytes refuses sizes above the limit of a directory in Limits.
func (i *Images) CheckFileBytes(path string, bytes int64) error {
	dir := filepath.Dir(path)
	if can, limited := i.Limits[dir]; limited && bytes > can.FileBytes {
		return &image.LimitError{Dir: dir, Kind: "exfat", Lacks: []string{"holds no such file"}}
	}
	return nil
}

// MayWrite refuses paths in ReadOnly.
func (i *Images) MayWrite(path string) error {
	if filepath.Dir(path) == i.ReadOnly {
		return api.Errorf(api.CodePermissionDenied, "ReadWritePaths=%s", i.ReadOnly)
	}
	return nil
}
