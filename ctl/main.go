// SPDX-License-Identifier: Apache-2.0

// Command volferryctl is the operator's command line. It speaks the HTTP API
// over one Unix socket, the daemon's or the registry's, or to a registry by TLS,
// and shows the answers. It decides nothing about volumes and knows nothing of how
// they are moved.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(run())
}

// run is main with an exit status. The first Ctrl-C or SIGTERM cancels the
// context, which detaches from work that lasts; then the signals have their
// default effect again, so a second one ends the process at once.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	app := newApp(os.Stdout, os.Stderr)
	args := arrange(app, os.Args)
	err := app.RunContext(ctx, args)
	return report(os.Stderr, err, typed(app, os.Args[1:]), wantsJSON(args))
}
