// SPDX-License-Identifier: Apache-2.0

// Program etcd is what the registry is compared with: `etcd serve` is an etcd of one
// member, with its defaults, and `etcd load` has clients attach and detach volumes at
// it by transactions that keep what the registry keeps, from as many hosts as there. The
// hosts show one certificate, of which etcd asks only who issued it. It is a module of its own, so
// that nothing of etcd is in what Volferry is built of. It must not know the registry.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
)

// options are what can be asked for.
type options struct {
	dir         string // of the server's data
	listen      string
	tls         string // directory with the site's authority, and the server's certificate
	certificate string // directory with the certificate of a host
	server      int    // process id of the server, whose CPU time is measured
	clients     int
	rate        int
	seconds     time.Duration
	seed        uint64
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var o options
	flag.StringVar(&o.dir, "dir", "", "`directory` of the server's data")
	flag.StringVar(&o.listen, "listen", "127.0.0.1:2379", "`address` of the server")
	flag.StringVar(&o.tls, "tls", "", "`directory` with ca.crt, server.crt and server.key")
	flag.StringVar(&o.certificate, "certificate", "", "`directory` with host.crt and host.key")
	flag.IntVar(&o.server, "server", 0, "process `id` of the server")
	flag.IntVar(&o.clients, "clients", 1000, "how many clients the load has; those of a host share a connection")
	flag.IntVar(&o.rate, "rate", 0, "changes per `second` that they offer together, 0 for as fast as they can")
	flag.DurationVar(&o.seconds, "time", 15*time.Second, "how long it is measured")
	flag.Uint64Var(&o.seed, "seed", 1, "of the ids")
	if len(os.Args) < 2 {
		return fmt.Errorf("say serve or load")
	}
	if err := flag.CommandLine.Parse(os.Args[2:]); err != nil {
		return fmt.Errorf("read flags: %w", err)
	}
	switch os.Args[1] {
	case "serve":
		return serve(ctx, o)
	case "load":
		return measure(ctx, o)
	}
	return fmt.Errorf("say serve or load, not %q", os.Args[1])
}

// identity is a certificate, and the authority that those of the others are from.
func (o options) identity(cert, key string) transport.TLSInfo {
	return transport.TLSInfo{
		CertFile: cert, KeyFile: key, TrustedCAFile: filepath.Join(o.tls, "ca.crt"),
		ClientCertAuth: true,
	}
}
