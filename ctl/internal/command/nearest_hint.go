// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
)

func hintNearest(c *cli.Context, s *session.Session, err error) error {
	var e *api.Error
	var advised *session.AdvisedError
	if s.JSON || !isNotFound(err) || !errors.As(err, &e) || errors.As(err, &advised) {
		return err
	}
	for _, named := range namedThings(c) {
		if !strings.Contains(e.Message, strconv.Quote(named.ref)) {
			continue
		}
		names := collectionNames(c.Context, s, named.collection)
		if near := humanize.Nearest(names, named.ref); near != "" && !slices.Contains(names, named.ref) {
			return &session.AdvisedError{Err: e, Exit: api.ExitNotFound, Advice: fmt.Sprintf("Did you mean %q?", near)}
		}
	}
	return err
}

type namedThing struct{ collection, ref string }

func namedThings(c *cli.Context) (out []namedThing) {
	add := func(collection, ref string) {
		if collection != "" && ref != "" {
			out = append(out, namedThing{collection, ref})
		}
	}
	for flag, collection := range flagCollections {
		add(collection, c.String(flag))
	}
	for i, place := range strings.Fields(c.Command.ArgsUsage) {
		add(argumentCollections[strings.Trim(place, "[]")], c.Args().Get(i))
	}
	return out
}
