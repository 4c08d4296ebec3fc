// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/volferry/volferry/daemon/internal/connector"
	"github.com/volferry/volferry/daemon/internal/connector/pools"
)

// Device is an open device.
type Device interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Sync() error
}

// Subject is the tested connector.
type Subject struct {
	// Run sends a request to the connector. It adds only the options and the pool.
	Run func(ctx context.Context, in connector.Request) (connector.Answer, error)
	// Look and Open query the kernel: pools.Look and OpenDevice.
	Look func(path string) (pools.Device, error)
	Open func(path string) (Device, error)
	// Volumes are the volumes of a target that the checks may connect and disconnect. Without
	// Overwrite nothing is written to them. No other program may have them connected. With two
	// volumes of one target the checks cover shared sessions.
	Volumes []string
	// Overwrite permits the checks of copy between Volumes.
	Overwrite bool
	// Late is how long the checks watch a volume for late writes after a copy has ended.
	Late time.Duration
	// SizeBytes is the size of the new volumes, 0 for a default; it is rounded up.
	SizeBytes int64
	// Interrupted has durations: a verb is interrupted after each of these times.
	Interrupted []time.Duration
	// Report is called for each check.
	Report func(Finding)
}

// Finding is the outcome of one check.
type Finding struct {
	Check string
	// Err is how the connector violates the protocol, or nil.
	Err error
}

type kit struct {
	Subject
	ctx   context.Context
	pool  connector.Pool
	names string
	// made has the identities of the volumes that may exist, or be connected, by name.
	made map[string]string
	bad  int
}

func (k *kit) check(what string, run func() error) bool {
	err := k.ctx.Err()
	if err == nil {
		err = run()
	}
	if err != nil {
		k.bad++
	}
	k.Report(Finding{Check: what, Err: err})
	return err == nil
}

const (
	opOne = "11111111-0000-4000-8000-000000000001"
	opTwo = "22222222-0000-4000-8000-000000000002"
)

func (k *kit) ask(in connector.Request) (connector.Answer, error) {
	if in.Protocol == 0 {
		in.Protocol = connector.Protocol
	}
	return k.Run(k.ctx, in)
}

func refused(err error, codes ...string) error {
	var said *connector.Error
	if !errors.As(err, &said) {
		if err == nil {
			return fmt.Errorf("it was done; the error %q was expected", codes[0])
		}
		return fmt.Errorf("the error %q was expected: %w", codes[0], err)
	}
	if slices.Contains(codes, said.Code) {
		return nil
	}
	return fmt.Errorf("the error is %q (%s), expected %q", said.Code, said.Message, codes[0])
}

func (k *kit) remember(name string) {
	if out, err := k.ask(connector.Request{Verb: connector.VerbInspect, Volume: name}); err == nil && out.Volume != nil {
		k.made[name] = out.Volume.Identity
	}
}

func (k *kit) create(name, opID string) error {
	out, err := k.ask(connector.Request{Verb: connector.VerbCreate, OpID: opID, Volume: name, SizeBytes: k.SizeBytes})
	if err != nil {
		return err
	}
	before, again := k.made[name]
	k.made[name] = out.Volume.Identity
	if err := k.checkVolume(name, *out.Volume, k.SizeBytes); err != nil {
		return err
	}
	switch {
	case out.Volume.OpID != opID:
		return fmt.Errorf("its op_id is %q, and it was made by %q", out.Volume.OpID, opID)
	case again && before != out.Volume.Identity:
		return fmt.Errorf("it was the device %q, and is %q", before, out.Volume.Identity)
	}
	return nil
}

func (k *kit) checkVolume(name string, said connector.Volume, sizeBytes int64) error {
	if _, err := pools.Check(k.Look, k.pool.Directory, name, said); err != nil {
		return err
	}
	if said.SizeBytes != sizeBytes {
		return fmt.Errorf("it has %d bytes, and was to have %d", said.SizeBytes, sizeBytes)
	}
	return nil
}

func (k *kit) same(name string) error {
	out, err := k.ask(connector.Request{Verb: connector.VerbInspect, Volume: name})
	if err != nil {
		return err
	}
	if out.Volume.Identity != k.made[name] {
		return fmt.Errorf("it is the device %q, and was %q", out.Volume.Identity, k.made[name])
	}
	return k.checkVolume(name, *out.Volume, k.SizeBytes)
}
