// SPDX-License-Identifier: Apache-2.0

package hosttest

import (
	"context"
	"time"

	"github.com/volferry/volferry/daemon/internal/image"
)

func (i *Images) flushFailure(path string) error {
	i.Mu.Lock()
	defer i.Mu.Unlock()
	if i.FlushFails == nil {
		return nil
	}
	err := i.FlushFails(path)
	if err == nil {
		return nil
	}
	i.FlushFails = nil
	i.Lost += i.Fake.FailSync(path)
	return &image.NotStoredError{Path: path, Err: err}
}

// Flush records that an image was flushed.
func (i *Images) Flush(_ context.Context, path string) error {
	i.Mu.Lock()
	slow := i.Slow
	i.Mu.Unlock()
	if slow != nil {
		time.Sleep(slow(path)) //nolint:forbidigo // nothing interrupts an fsync
	}
	if err := i.flushFailure(path); err != nil {
		return err
	}
	i.Fake.Sync(path)
	i.note("flush", path)
	return nil
}

// Sync only returns the error of FlushFails: in memory an image's size needs no sync.
func (i *Images) Sync(_ context.Context, path string) error { return i.flushFailure(path) }

// Connect does nothing: these images are not cached.
func (i *Images) Connect(context.Context, string) error { return nil }

// Disconnect counts the call.
func (i *Images) Disconnect(_ context.Context, path string) error {
	if i.Places != nil {
		if _, err := i.info(path); err != nil {
			return err
		}
	}
	if err := i.flushFailure(path); err != nil {
		return err
	}
	i.Mu.Lock()
	defer i.Mu.Unlock()
	i.Disconnects++
	if i.OnDisconnect != nil {
		i.OnDisconnect()
	}
	i.Early = i.Early || i.Fake.Writers(path) > 0
	return nil
}
