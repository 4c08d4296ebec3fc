// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/volferry/volferry/daemon/internal/config"
	"github.com/volferry/volferry/daemon/internal/connector"
	"github.com/volferry/volferry/daemon/internal/connector/pools"
	"github.com/volferry/volferry/daemon/internal/programs"
	"github.com/volferry/volferry/internal/settings"
)

// optionsTimeout is how long a connector may take to inspect its pool while a person waits.
const optionsTimeout = 15 * time.Second

// checkConfig checks the configuration. It writes the result to stdout, and everything else to
// stderr.
func checkConfig(ctx context.Context, cfg *config.Config, stdout, stderr io.Writer) error {
	if err := cfg.Check(); err != nil {
		return err
	}
	warnings := cfg.Warnings()
	if os.Getenv(programs.EnvConnectors) == "" { // otherwise this is the check before a start, which no pool may prevent
		asked, err := askConnectors(ctx, cfg)
		if err != nil {
			return err
		}
		warnings = append(warnings, asked...)
	}
	for _, w := range warnings {
		_, _ = fmt.Fprintln(stderr, "warning:", w)
	}
	answer := settings.Right(cfg.NoFile)
	if len(warnings) > 0 {
		answer += ", but for the warnings"
	}
	_, err := fmt.Fprintln(stdout, answer)
	return err
}

// askConnectors makes each connector inspect its pools. The error names the pools with options
// that the connector refuses. Any other failure of an inspection is only a warning: the options
// may be right.
func askConnectors(ctx context.Context, c *config.Config) (warnings []string, err error) {
	runner := &connector.Runner{Config: func() (string, map[string]connector.PoolConfig, error) {
		return c.ConnectorDir, c.ConnectorPools, nil
	}}
	var refused []error
	for _, pool := range slices.Sorted(maps.Keys(c.ConnectorPools)) {
		name := c.ConnectorPools[pool].Connector()
		if _, err := connector.Find(c.ConnectorDir, name); err != nil {
			continue // it already has a warning
		}
		bounded, cancel := context.WithTimeout(ctx, optionsTimeout)
		out, err := runner.Run(bounded, pool, connector.Request{Verb: connector.VerbInspect})
		cancel()
		if err == nil {
			err = pools.CheckPool(*out.Pool)
		}
		var said *connector.Error
		switch {
		case err == nil:
		case errors.As(err, &said) && said.Code == connector.CodeInvalid:
			refused = append(refused, fmt.Errorf("connector_pools: pool %s: connector %s refuses its options: %w", pool, name, said))
		case errors.Is(err, context.DeadlineExceeded):
			warnings = append(warnings, fmt.Sprintf("connector_pools: pool %s was not checked: connector %s has not answered within %s", pool, name, optionsTimeout))
		default:
			warnings = append(warnings, fmt.Sprintf("connector_pools: pool %s: connector %s cannot look at it: %v", pool, name, err))
		}
	}
	return warnings, errors.Join(refused...)
}
