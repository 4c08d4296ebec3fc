// SPDX-License-Identifier: Apache-2.0

// Package command has the commands of volferryctl.
package command

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/volferry/volferry/ctl/internal/cmdline"
)

// Main runs the command line of the process and returns its exit status. The first Ctrl-C or
// SIGTERM ends a wait for lasting work. A second signal ends the process.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	app := newApp(os.Stdout, os.Stderr)
	args := cmdline.Arrange(app, os.Args)
	err := app.RunContext(ctx, args)
	err = adviseRegistry(app, os.Args, err)
	return report(os.Stderr, err, cmdline.TypedCommand(app, os.Args[1:]), cmdline.WantsJSON(args))
}
