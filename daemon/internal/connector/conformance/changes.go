// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/volferry/volferry/daemon/internal/connector"
	"github.com/volferry/volferry/daemon/internal/connector/pools"
)

var pattern = bytes.Repeat([]byte("volferry"), 512)

func (k *kit) extensions(name string) {
	before, after := k.SizeBytes, k.SizeBytes+2*k.pool.GranularityBytes
	extend := func(sizeBytes int64, identity string) error {
		out, err := k.ask(connector.Request{Verb: connector.VerbExtend, OpID: opTwo, Volume: name, SizeBytes: sizeBytes, Identity: identity})
		if err != nil {
			return err
		}
		if out.Volume.Identity != k.made[name] {
			return fmt.Errorf("it is the device %q, and was %q", out.Volume.Identity, k.made[name])
		}
		return k.checkVolume(name, *out.Volume, sizeBytes)
	}
	k.check("the extension of another device is refused", func() error {
		return errors.Join(refused(extend(after, "none"), connector.CodeChanged), k.same(name))
	})
	k.check("extend makes a volume exactly that large, and keeps what is in it", func() error {
		if err := k.write(name, 0, before-int64(len(pattern))); err != nil {
			return err
		}
		if err := extend(after, k.made[name]); err != nil {
			return err
		}
		return errors.Join(k.holds(name, 0, before-int64(len(pattern))), k.readsZeros(name, before, after))
	})
	k.check("an extension that is asked for again is done", func() error { return extend(after, k.made[name]) })
	k.check("a volume is not made smaller", func() error {
		err := refused(extend(before, k.made[name]), connector.CodeInvalid, connector.CodeUnsupported)
		return errors.Join(err, k.holds(name, before-int64(len(pattern))))
	})
}

func (k *kit) write(name string, at ...int64) (err error) {
	d, err := k.Open(k.pool.Directory + "/" + name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Sync(), d.Close()) }()
	for _, offset := range at {
		if _, err := d.WriteAt(pattern, offset); err != nil {
			return err
		}
	}
	return nil
}

func (k *kit) holds(name string, at ...int64) (err error) {
	d, err := k.Open(k.pool.Directory + "/" + name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	found := make([]byte, len(pattern))
	for _, offset := range at {
		if _, err := d.ReadAt(found, offset); err != nil {
			return err
		}
		if !bytes.Equal(found, pattern) {
			return fmt.Errorf("what was written at %d is not there any more", offset)
		}
	}
	return nil
}

func (k *kit) readsZeros(name string, from, to int64) (err error) {
	d, err := k.Open(k.pool.Directory + "/" + name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	chunk := make([]byte, 1<<20)
	zeros := make([]byte, len(chunk))
	for at := from; at < to; at += int64(len(chunk)) {
		n := min(int64(len(chunk)), to-at)
		if _, err := d.ReadAt(chunk[:n], at); err != nil {
			return err
		}
		if !bytes.Equal(chunk[:n], zeros[:n]) {
			return fmt.Errorf("between %d and %d it has something: another's data, perhaps", at, at+n)
		}
	}
	return nil
}

func (k *kit) deleteOpen(name string) (err error) {
	d, err := k.Open(k.pool.Directory + "/" + name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	_, err = k.ask(connector.Request{Verb: connector.VerbDelete, OpID: opTwo, Volume: name, Identity: k.made[name]})
	if err := refused(err, connector.CodeInUse, connector.CodeBusy); err != nil {
		return err
	}
	return k.there(name)
}

func (k *kit) deleteOther(name string) error {
	_, err := k.ask(connector.Request{Verb: connector.VerbDelete, OpID: opTwo, Volume: name, Identity: "none"})
	if err := refused(err, connector.CodeChanged); err != nil {
		return err
	}
	return k.there(name)
}

func (k *kit) there(name string) error {
	d, err := k.Look(k.pool.Directory + "/" + name)
	if err == nil && d.Identity != k.made[name] {
		err = fmt.Errorf("the device is %q, and was %q", d.Identity, k.made[name])
	}
	return err
}

func (k *kit) remove(name string) error {
	if _, err := k.ask(connector.Request{Verb: connector.VerbDelete, OpID: opTwo, Volume: name, Identity: k.made[name]}); err != nil {
		return err
	}
	_, err := k.ask(connector.Request{Verb: connector.VerbInspect, Volume: name})
	if err := refused(err, connector.CodeNotFound); err != nil {
		return err
	}
	if d, err := k.Look(k.pool.Directory + "/" + name); !errors.Is(err, pools.ErrNoDevice) {
		return fmt.Errorf("the device %q is there (%w)", d.Identity, err)
	}
	return nil
}

func (k *kit) removeAgain(name string) error {
	_, err := k.ask(connector.Request{Verb: connector.VerbDelete, OpID: opTwo, Volume: name, Identity: k.made[name]})
	return err
}

func (k *kit) another(name string) error {
	was := k.made[name]
	delete(k.made, name)
	if err := k.create(name, opOne); err != nil {
		return err
	}
	if k.made[name] == was {
		return fmt.Errorf("it is the device %q, which was deleted", was)
	}
	return k.readsZeros(name, 0, k.SizeBytes)
}

func (k *kit) interruptCreate(after time.Duration) error {
	name := k.names + "-c"
	delete(k.made, name)
	k.interrupt(after, connector.Request{Verb: connector.VerbCreate, OpID: opOne, Volume: name, SizeBytes: k.SizeBytes})
	if err := k.create(name, opOne); err != nil {
		k.remember(name)
		return err
	}
	return k.readsZeros(name, 0, k.SizeBytes)
}

func (k *kit) interruptDelete(after time.Duration) error {
	name := k.names + "-c"
	if k.made[name] == "" {
		return errors.New("it was not made")
	}
	k.interrupt(after, connector.Request{Verb: connector.VerbDelete, OpID: opTwo, Volume: name, Identity: k.made[name]})
	err := k.remove(name)
	if err == nil {
		delete(k.made, name)
	}
	return err
}

func (k *kit) interrupt(after time.Duration, in connector.Request) {
	in.Protocol = connector.Protocol
	ctx, cancel := context.WithTimeout(k.ctx, after)
	defer cancel()
	_, _ = k.Run(ctx, in)
}

func (k *kit) cleanUp() error {
	k.ctx = context.WithoutCancel(k.ctx)
	var left error
	for name := range k.made {
		if out, err := k.ask(connector.Request{Verb: connector.VerbInspect, Volume: name}); err == nil && out.Volume != nil {
			k.made[name] = out.Volume.Identity
		}
		if err := k.remove(name); err != nil {
			left = errors.Join(left, fmt.Errorf("%s: %w", name, err))
		}
	}
	return left
}
