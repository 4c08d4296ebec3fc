// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"time"

	"github.com/volferry/volferry/daemon/internal/connector"
	"github.com/volferry/volferry/daemon/internal/connector/pools"
)

func (k *kit) connections() {
	if !k.check("there are volumes to connect, and none of them is", k.notConnected) {
		return
	}
	a := k.Volumes[0]
	b := k.Volumes[len(k.Volumes)-1]
	k.check("a volume that the target does not have is not connected", func() error {
		_, err := k.ask(connector.Request{Verb: connector.VerbConnect, OpID: opOne, Volume: k.names + "-none"})
		return errors.Join(refused(err, connector.CodeNotFound), k.away())
	})
	if k.check("connect gives a volume its device", func() error { return k.connect(a, opOne) }) {
		k.check("a connect that is asked for again gives the same answer", func() error { return k.connect(a, opOne) })
		k.check("a connect by another op gives the same answer", func() error { return k.connect(a, opTwo) })
		k.check("inspect says of a volume what connect has said", func() error { return k.stays(a) })
		k.check("a volume that is open is not disconnected", func() error { return k.disconnectOpen(a) })
		k.check("the disconnect of another device is refused", func() error {
			return errors.Join(refused(k.disconnect(a, "none"), connector.CodeChanged), k.stays(a))
		})
		if a != b {
			k.check("two volumes of a target are two devices, and what they share ends with the last one", func() error { return k.shared(a, b) })
		}
		k.check("disconnect takes the device away", func() error { return errors.Join(k.disconnect(a, k.made[a]), k.away()) })
		k.check("a disconnect that is asked for again is done", func() error { return errors.Join(k.disconnect(a, k.made[a]), k.away()) })
	}
	if k.Overwrite && k.pool.Can(connector.VerbCopy) {
		k.check("both volumes are connected to copy between them", func() error { return errors.Join(k.connect(a, opOne), k.connect(b, opOne)) })
		k.copies(a, b)
		k.check("both volumes are disconnected", func() error {
			return errors.Join(k.disconnect(a, k.made[a]), k.disconnect(b, k.made[b]), k.away())
		})
	}
	for _, after := range k.Interrupted {
		k.check(fmt.Sprintf("a connect that is ended after %s can be asked for again", after), func() error { return k.interruptConnect(a, after) })
		k.check(fmt.Sprintf("a disconnect that is ended after %s can be asked for again", after), func() error { return k.interruptDisconnect(a, after) })
	}
	k.check("everything that was connected is disconnected", k.disconnectAll)
}

func (k *kit) notConnected() error {
	if len(k.Volumes) == 0 {
		return errors.New("none was named; name one or two of the target that nobody uses")
	}
	return k.away()
}

func (k *kit) away() error {
	for _, name := range k.Volumes {
		d, err := k.Look(k.pool.Directory + "/" + name)
		if err == nil {
			return fmt.Errorf("%s has the device %q", name, d.Identity)
		}
		if !errors.Is(err, pools.ErrNoDevice) {
			return err
		}
		_, err = k.ask(connector.Request{Verb: connector.VerbInspect, Volume: name})
		if err := refused(err, connector.CodeNotConnected, connector.CodeNotFound); err != nil {
			return err
		}
	}
	return nil
}

func (k *kit) connect(name, opID string) error {
	out, err := k.ask(connector.Request{Verb: connector.VerbConnect, OpID: opID, Volume: name})
	if err != nil {
		return err
	}
	before, again := k.made[name]
	k.made[name] = out.Volume.Identity
	if again && before != out.Volume.Identity {
		return fmt.Errorf("it was the device %q, and is %q", before, out.Volume.Identity)
	}
	_, err = pools.Check(k.Look, k.pool.Directory, name, *out.Volume)
	return err
}

func (k *kit) disconnect(name, identity string) error {
	_, err := k.ask(connector.Request{Verb: connector.VerbDisconnect, OpID: opTwo, Volume: name, Identity: identity})
	return err
}

func (k *kit) stays(name string) error {
	out, err := k.ask(connector.Request{Verb: connector.VerbInspect, Volume: name})
	if err != nil {
		return err
	}
	if out.Volume.Identity != k.made[name] {
		return fmt.Errorf("it is the device %q, and was %q", out.Volume.Identity, k.made[name])
	}
	_, err = pools.Check(k.Look, k.pool.Directory, name, *out.Volume)
	return err
}

func (k *kit) disconnectOpen(name string) (err error) {
	d, err := k.Open(k.pool.Directory + "/" + name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := refused(k.disconnect(name, k.made[name]), connector.CodeInUse, connector.CodeBusy); err != nil {
		return err
	}
	return k.stays(name)
}

// shared connects a second volume, and disconnects the first: the second must keep its device. At
// the end only the first is connected again.
func (k *kit) shared(a, b string) error {
	if err := k.connect(b, opTwo); err != nil {
		return err
	}
	if k.made[a] == k.made[b] {
		return fmt.Errorf("both are the device %q", k.made[a])
	}
	if err := errors.Join(k.disconnect(a, k.made[a]), k.stays(b)); err != nil {
		return err
	}
	if err := k.connect(a, opOne); err != nil {
		return err
	}
	return errors.Join(k.disconnect(b, k.made[b]), k.stays(a))
}

func (k *kit) interruptConnect(name string, after time.Duration) error {
	k.interrupt(after, connector.Request{Verb: connector.VerbConnect, OpID: opOne, Volume: name})
	return k.connect(name, opOne)
}

func (k *kit) interruptDisconnect(name string, after time.Duration) error {
	if k.made[name] == "" {
		return errors.New("it was not connected")
	}
	k.interrupt(after, connector.Request{Verb: connector.VerbDisconnect, OpID: opTwo, Volume: name, Identity: k.made[name]})
	return errors.Join(k.disconnect(name, k.made[name]), k.away())
}

func (k *kit) disconnectAll() error {
	var errs []error
	for name, identity := range k.made {
		errs = append(errs, k.disconnect(name, identity))
	}
	return errors.Join(append(errs, k.away())...)
}
