// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// adviseRegistry adds the command line for the registry to a daemon's error with the registry's
// address: only the registry serves the request, or it serves the request only to operators.
func adviseRegistry(app *cli.App, argv []string, err error) error {
	var (
		advised *session.AdvisedError
		e       *api.Error
	)
	if errors.As(err, &advised) || !errors.As(err, &e) {
		return err
	}
	address, ok := e.Details[api.DetailRegistry].(string)
	if !ok || address == "" {
		return err
	}
	words := withoutConnection(app, argv[1:])
	ask := func(connection ...string) string {
		return "  " + shell.Line(slices.Concat([]string{session.Program}, connection, words)...)
	}
	advice := "Ask the registry:\n" + ask("--socket", address)
	if session.OverTCP(address) {
		advice = "Ask the registry as an operator:\n" + ask("--socket", address, "--ca", "CA", "--cert", "CERT", "--key", "KEY") +
			"\nor on its machine:\n" + ask("--socket", session.RegistrySocket)
	}
	return &session.AdvisedError{Err: e, Exit: e.Code.ExitStatus(), Advice: advice}
}

func withoutConnection(app *cli.App, words []string) []string {
	connection := []string{"socket", "ca", "cert", "key"}
	var out []string
	for i := 0; i < len(words); i++ {
		if words[i] == "--" {
			return append(out, words[i:]...)
		}
		name, _, hasValue := strings.Cut(strings.TrimLeft(words[i], "-"), "=")
		if !cmdline.IsFlag(words[i]) || cmdline.FindFlag(app.Flags, name) == nil || !slices.Contains(connection, name) {
			out = append(out, words[i])
		} else if !hasValue {
			i++
		}
	}
	return out
}
