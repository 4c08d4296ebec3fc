// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/internal/api"
)

// filterFlags are the flags by which a list is made shorter.
func filterFlags(flags ...string) []cli.Flag {
	all := map[string]cli.Flag{
		"host":     &cli.StringFlag{Name: "host", Usage: "only what is on `HOST`"},
		"pool":     &cli.StringFlag{Name: "pool", Usage: "only what is in `POOL`"},
		"volume":   &cli.StringFlag{Name: "volume", Usage: "only those of `VOLUME`"},
		"instance": &cli.StringFlag{Name: "instance", Usage: "only those of `INSTANCE`"},
	}
	out := make([]cli.Flag, 0, len(flags))
	for _, name := range flags {
		out = append(out, all[name])
	}
	return out
}

// statusFlag is a filter whose values are the words of one noun.
type statusFlag struct {
	*cli.StringFlag
	words []string
}

// filterStatus is the filter of a list by what its column STATE or STATUS says.
func filterStatus(words []string) cli.Flag {
	return statusFlag{words: words, StringFlag: &cli.StringFlag{
		Name: "status", Usage: "only what is `STATUS`: " + orList(words),
		Action: func(_ *cli.Context, got string) error {
			if err := oneWord(words, got); err != nil {
				return usagef("--status: %w", err)
			}
			return nil
		},
	}}
}

// orNoMatch is what to say of an empty list: that no noun matches, where one of the
// filters is set.
func orNoMatch(c *cli.Context, noun, empty string, filters ...string) string {
	if slices.ContainsFunc(filters, c.IsSet) {
		return "No " + noun + " matches."
	}
	return empty
}

// fits says whether one of the values of a thing is the one that a flag asks for.
func fits(c *cli.Context, flag string, values ...string) bool {
	asked := c.String(flag)
	return asked == "" || slices.Contains(values, asked)
}

// only is a list and its answer without what keep does not keep. What stays is as the
// other side said it, also what this version does not know.
func only[T any](things []T, a answer, nouns string, keep func(T) bool) ([]T, answer, error) {
	var said []json.RawMessage
	stays := [][]byte{}
	if a.has(nouns) {
		if err := a.decode(nouns, &said); err != nil {
			return nil, a, err
		}
	}
	kept := []T{}
	for i, t := range things {
		if keep(t) {
			kept, stays = append(kept, t), append(stays, said[i])
		}
	}
	if len(kept) == len(things) {
		return things, a, nil
	}
	return kept, a.with(nouns, slices.Concat([]byte("["), bytes.Join(stays, []byte(",")), []byte("]"))), nil
}

// hostsOf are the hosts that a volume is on: those that have it attached, or the one
// that has it.
func hostsOf(v api.Volume) []string {
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
