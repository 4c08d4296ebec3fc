// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/nbd"
	"github.com/volferry/volferry/internal/medium"
)

type exports struct{ dial nbd.Dial }

func (e exports) open(ctx context.Context, path string, _ bool) (*nbd.Export, error) {
	address, err := medium.ParseNBD(path)
	if err != nil {
		return nil, err
	}
	return nbd.Open(ctx, e.dial, address)
}

func (e exports) look(ctx context.Context, path string) (sizeBytes int64, id string, err error) {
	export, err := e.open(ctx, path, false)
	if err != nil {
		return 0, "", err
	}
	return export.SizeBytes(), "", export.Close()
}

const answerTimeout = 20 * time.Second

func (e exports) answers(ctx context.Context, path string) error {
	err := e.touch(ctx, path)
	for _, silent := range []error{nbd.ErrNoAnswer, context.DeadlineExceeded, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EHOSTDOWN, unix.ETIMEDOUT} {
		if errors.Is(err, silent) {
			return nbd.ErrNoAnswer
		}
	}
	return nil
}

func (e exports) touch(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, nbd.ErrNoAnswer)
	defer cancel()
	export, err := e.open(ctx, path, false)
	if err != nil {
		return err
	}
	_, err = export.ReadAt(make([]byte, min(export.SizeBytes(), 4<<10)), 0)
	return errors.Join(cmp.Or(err, export.Flush()), export.Close())
}
