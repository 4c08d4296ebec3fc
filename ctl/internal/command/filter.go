// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

func filterFlags(flags ...string) []cli.Flag {
	all := map[string]cli.Flag{
		"host":     &cli.StringFlag{Name: "host", Usage: "only results on `HOST`"},
		"pool":     &cli.StringFlag{Name: "pool", Usage: "only results in `POOL`"},
		"volume":   &cli.StringFlag{Name: "volume", Usage: "only results of `VOLUME`"},
		"instance": &cli.StringFlag{Name: "instance", Usage: "only results of `INSTANCE`"},
	}
	out := make([]cli.Flag, 0, len(flags))
	for _, name := range flags {
		out = append(out, all[name])
	}
	return out
}

type statusFlag struct {
	*cli.StringFlag
	words []string
}

func filterStatus(words []string) cli.Flag {
	return statusFlag{words: words, StringFlag: &cli.StringFlag{
		Name: "status", Usage: "only results with status `STATUS`: " + cmdline.OrList(words),
		Action: func(_ *cli.Context, got string) error {
			if err := cmdline.CheckOneOf(words, got); err != nil {
				return cmdline.Usagef("--status: %w", err)
			}
			return nil
		},
	}}
}

// emptyText returns whenEmpty or, if the user has set a filter, that nothing matches.
func emptyText(c *cli.Context, noun, whenEmpty string, filters ...string) string {
	if slices.ContainsFunc(filters, c.IsSet) {
		return "No " + noun + " matches."
	}
	return whenEmpty
}

func matches(c *cli.Context, flag string, values ...string) bool {
	asked := c.String(flag)
	return asked == "" || slices.Contains(values, asked)
}

// filterList returns the objects that keep accepts, and the answer with only these. Their JSON
// keeps unknown fields.
func filterList[T any](things []T, resp session.Response, collection string, keep func(T) bool) ([]T, session.Response, error) {
	var said []json.RawMessage
	stays := [][]byte{}
	if resp.Has(collection) {
		if err := resp.Decode(collection, &said); err != nil {
			return nil, resp, err
		}
	}
	kept := []T{}
	for i, t := range things {
		if keep(t) {
			kept, stays = append(kept, t), append(stays, said[i])
		}
	}
	if len(kept) == len(things) {
		return things, resp, nil
	}
	return kept, resp.With(collection, slices.Concat([]byte("["), bytes.Join(stays, []byte(",")), []byte("]"))), nil
}

// checkHost refuses a --host that names no host, if nothing was found for it: a list may still
// have things of a forgotten host.
func checkHost(c *cli.Context, s *session.Session, found int) error {
	host := c.String("host")
	if host == "" || found > 0 {
		return nil
	}
	hosts, _, err := session.List(c.Context, s, routes.ListHosts)
	if err != nil || slices.ContainsFunc(hosts, func(h api.Host) bool { return host == h.Name || host == h.ID }) {
		return nil //nolint:nilerr // the user asked for the list, which was read
	}
	return api.NotFound("host", host)
}

func checkPool(ctx context.Context, s *session.Session, name string) error {
	pools, _, err := session.List(ctx, s, routes.ListPools)
	if err != nil {
		return err
	}
	return checkPoolIn(pools, name)
}

func checkPoolIn(pools []api.Pool, name string) error {
	if slices.ContainsFunc(pools, func(p api.Pool) bool { return p.Name == name }) {
		return nil
	}
	return api.NotFound("pool", name)
}

func volumeHosts(v api.Volume) []string {
	var hosts []string
	for _, a := range v.Attachments {
		if a.Host != "" && !slices.Contains(hosts, a.Host) {
			hosts = append(hosts, a.Host)
		}
	}
	if len(hosts) == 0 && v.Host != "" {
		hosts = []string{v.Host}
	}
	return hosts
}

func boolParam(given bool) string {
	if given {
		return "1"
	}
	return ""
}
