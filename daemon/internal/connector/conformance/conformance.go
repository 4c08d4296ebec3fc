// SPDX-License-Identifier: Apache-2.0

// Package conformance is the test kit for connectors. It sends a connector every request of the
// protocol, each verb more than once, and reports the violations. It makes, writes to and deletes
// its own volumes, with unique names. It connects the named volumes of a target, and writes to
// them only if Subject.Overwrite permits that.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/connector"
	"github.com/volferry/volferry/daemon/internal/connector/pools"
)

// OpenDevice opens a block device for the checks. It drops this host's cached pages of the device,
// because the storage may have copied to it since.
func OpenDevice(path string) (Device, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// defaultSizeBytes is large enough to check that data is kept, and small enough to read quickly.
const defaultSizeBytes = 16 << 20

// Run makes all checks, deletes its volumes, and returns how many checks have failed.
func Run(ctx context.Context, s Subject) (failed int) {
	k := &kit{Subject: s, ctx: ctx, names: "volferry-test-" + uuid.NewString()[:8], made: map[string]string{}}
	k.check("a protocol that there is not is refused", k.unknownProtocol)
	k.check("a verb that there is not is refused", k.unknownVerb)
	if !k.check("inspect says what the pool is, twice the same", k.inspectPool) {
		return k.bad
	}
	k.check("a name that could be a path or an option is refused", k.badNames)
	if k.pool.Can(connector.VerbCreate) {
		k.creations()
	}
	if k.pool.Can(connector.VerbConnect) {
		k.connections()
	}
	return k.bad
}

func (k *kit) creations() {
	k.check("a volume that is not there is not found", k.absent)
	k.check("the delete of a volume that is not there is done", k.deleteAbsent)
	k.check("a size that is no multiple is refused, and nothing is made", k.oddSize)
	a, b := k.names+"-a", k.names+"-b"
	if k.check("create makes a volume of exactly that size", func() error { return k.create(a, opOne) }) {
		k.check("a new volume reads as zeros", func() error { return k.readsZeros(a, 0, k.SizeBytes) })
		k.check("a create that is asked for again gives the same answer", func() error { return k.create(a, opOne) })
		k.check("a create by another op is refused, and changes nothing", func() error { return k.createTaken(a, opTwo, k.SizeBytes) })
		k.check("a create by the same op with another size is refused", func() error { return k.createTaken(a, opOne, k.SizeBytes+k.pool.GranularityBytes) })
		k.check("inspect says of a volume what create has said", func() error { return k.same(a) })
		k.check("two volumes are two devices", func() error { return k.second(a, b) })
		if k.pool.Can(connector.VerbCopy) && k.made[b] != "" {
			k.copies(a, b)
		}
		if k.pool.Can(connector.VerbExtend) {
			k.extensions(a)
		}
		k.check("a volume that is open is not deleted", func() error { return k.deleteOpen(a) })
		k.check("the delete of another device is refused", func() error { return k.deleteOther(a) })
		k.check("delete deletes a volume", func() error { return k.remove(a) })
		k.check("a delete that is asked for again is done", func() error { return k.removeAgain(a) })
		k.check("the other volume is as it was", func() error { return k.same(b) })
		k.check("a name that is free again gets another device", func() error { return k.another(a) })
	}
	for _, after := range k.Interrupted {
		k.check(fmt.Sprintf("a create that is ended after %s can be asked for again", after), func() error { return k.interruptCreate(after) })
		k.check(fmt.Sprintf("a delete that is ended after %s can be asked for again", after), func() error { return k.interruptDelete(after) })
	}
	k.check("everything that was made is gone", k.cleanUp)
}

func (k *kit) unknownProtocol() error {
	_, err := k.ask(connector.Request{Protocol: 999, Verb: connector.VerbInspect})
	return refused(err, connector.CodeProtocol)
}

func (k *kit) unknownVerb() error {
	_, err := k.ask(connector.Request{Verb: "no-such-verb", OpID: opOne, Volume: k.names})
	return refused(err, connector.CodeUnsupported, connector.CodeInvalid)
}

func (k *kit) inspectPool() error {
	for range 2 {
		out, err := k.ask(connector.Request{Verb: connector.VerbInspect})
		if err != nil {
			return err
		}
		if err := pools.CheckPool(*out.Pool); err != nil {
			return err
		}
		if k.pool.Directory != "" && (k.pool.Directory != out.Pool.Directory || k.pool.GranularityBytes != out.Pool.GranularityBytes) {
			return fmt.Errorf("it was %+v, and is %+v", k.pool, *out.Pool)
		}
		k.pool = *out.Pool
	}
	if k.SizeBytes == 0 {
		k.SizeBytes = defaultSizeBytes
	}
	g := k.pool.GranularityBytes
	k.SizeBytes = (k.SizeBytes + g - 1) / g * g
	return nil
}

func (k *kit) badNames() error {
	for _, name := range []string{"../" + k.names, "-" + k.names, k.names + " x", k.names + "/x", "."} {
		verb := connector.VerbCreate
		if !k.pool.Can(verb) {
			verb = connector.VerbConnect
		}
		_, err := k.ask(connector.Request{Verb: verb, OpID: opOne, Volume: name, SizeBytes: k.SizeBytes})
		if err := refused(err, connector.CodeInvalid); err != nil {
			return fmt.Errorf("name %q: %w", name, err)
		}
	}
	return nil
}

func (k *kit) absent() error {
	_, err := k.ask(connector.Request{Verb: connector.VerbInspect, Volume: k.names + "-none"})
	return refused(err, connector.CodeNotFound)
}

func (k *kit) deleteAbsent() error {
	_, err := k.ask(connector.Request{Verb: connector.VerbDelete, OpID: opOne, Volume: k.names + "-none", Identity: "none"})
	return err
}

func (k *kit) oddSize() error {
	name := k.names + "-odd"
	if k.pool.GranularityBytes <= 512 {
		return nil
	}
	_, err := k.ask(connector.Request{Verb: connector.VerbCreate, OpID: opOne, Volume: name, SizeBytes: k.SizeBytes + 512})
	if err := refused(err, connector.CodeInvalid); err != nil {
		k.remember(name)
		return err
	}
	_, err = k.ask(connector.Request{Verb: connector.VerbInspect, Volume: name})
	return refused(err, connector.CodeNotFound)
}

func (k *kit) createTaken(name, opID string, sizeBytes int64) error {
	_, err := k.ask(connector.Request{Verb: connector.VerbCreate, OpID: opID, Volume: name, SizeBytes: sizeBytes})
	return errors.Join(refused(err, connector.CodeExists), k.same(name))
}

func (k *kit) second(a, b string) error {
	if err := k.create(b, opTwo); err != nil {
		return err
	}
	if k.made[a] == k.made[b] {
		return fmt.Errorf("both are the device %q", k.made[a])
	}
	return nil
}
