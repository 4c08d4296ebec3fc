// SPDX-License-Identifier: Apache-2.0

// Program iscsi is the connector of an iSCSI target. Its volumes are the target's logical units,
// by the names that udev gives them in /dev/disk/by-id: a multipath map, or a disk if the target
// has one portal. Its options are iqn, the name of the target, and portals, one or more of
// HOST:PORT, separated by commas.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/connectors/internal/command"
	"github.com/volferry/volferry/daemon/connectors/internal/target"
	"github.com/volferry/volferry/daemon/internal/connector"
)

func main() {
	// A verb runs to its end, and so do its commands, which inherit this: otherwise iscsid would
	// continue a login that no process knows of. The caller's grace period is long enough.
	signal.Ignore(unix.SIGTERM)
	c := iscsi{
		Devices: target.Host(func(devices []string) (int, error) { return target.Opener(devices, multipathd) }),
		run:     command.Run, runHolding: command.RunHolding, installed: command.Installed, canCopy: canCopy, write: writeAttribute, flush: flush, state: target.StateDir,
	}
	handle := func(ctx context.Context, in connector.Request) (connector.Answer, error) {
		out, err := c.handle(ctx, in)
		if errors.Is(err, errUnclear) {
			fmt.Fprintf(os.Stderr, "iscsi: %v\n", err)
			os.Exit(1) // without an answer
		}
		return out, err
	}
	if err := connector.Serve(context.Background(), os.Stdin, os.Stdout, handle); err != nil {
		fmt.Fprintf(os.Stderr, "iscsi: %v\n", err)
		os.Exit(1)
	}
}

func (i iscsi) handle(ctx context.Context, in connector.Request) (connector.Answer, error) {
	p, err := placeOf(in.Options)
	if err != nil {
		return connector.Answer{}, err
	}
	switch in.Verb {
	case connector.VerbInspect:
		return i.inspect(p, in)
	case connector.VerbCopy:
		return i.copy(ctx, p, in)
	case connector.VerbConnect, connector.VerbDisconnect:
		if err := i.awaitCopy(in.Volume); err != nil {
			return connector.Answer{}, err
		}
		marks, err := target.Take(i.state, "iscsi", p.iqn)
		if err != nil {
			return connector.Answer{}, err
		}
		defer marks.Release()
		if in.Verb == connector.VerbConnect {
			return i.connect(ctx, p, marks, in)
		}
		return connector.Answer{}, i.disconnect(ctx, p, marks, in)
	}
	return connector.Answer{}, connector.Errorf(connector.CodeUnsupported, "a target of iSCSI has the volumes that it has: there is no verb %q here", in.Verb)
}
