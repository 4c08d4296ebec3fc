// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/routes"
)

type poolSources struct {
	s            *session.Session
	pool         string
	remove, stay []api.ReleasedSource
	// deleted are the documents of the deleted sources, ids their migrations.
	deleted []json.RawMessage
	ids     []string
	bytes   int64
}

func deleteSourcesOf(c *cli.Context, s *session.Session) error {
	if c.NArg() > 0 {
		return cmdline.Usagef("%sgive a migration, or --pool, not both", cmdline.Prefix(c))
	}
	host, err := requestedHost(c, s)
	if err != nil {
		return err
	}
	left, _, err := session.List(c.Context, s, routes.ListReleased.With("host", host))
	if err != nil {
		return explainHostChoice(err)
	}
	p := poolSources{s: s, pool: c.String("pool"), deleted: []json.RawMessage{}}
	var size int64
	for i := range left {
		switch r := &left[i]; {
		case r.Location.Pool != p.pool:
		case r.Blocked != "" && (r.WrittenUnknown == "" || !c.Bool("force")):
			p.stay = append(p.stay, *r)
		default:
			p.remove, size = append(p.remove, *r), size+r.Location.SizeBytes
		}
	}
	if len(p.remove) > 0 && !c.Bool(flagYes) {
		what := fmt.Sprintf("%s of pool %s, %s", humanize.Count(len(p.remove), "released source"), p.pool, humanize.Bytes(size))
		if err := confirm(c, s, fmt.Sprintf("Delete %s?", what), fmt.Sprintf("%s would be deleted: give --yes where there is no terminal", what)); err != nil {
			return err
		}
	}
	return p.perform(c)
}

// perform deletes the sources that may be deleted. It continues after a refused source.
func (p *poolSources) perform(c *cli.Context) error {
	for i := range p.remove {
		r := &p.remove[i]
		resp, _, err := session.Perform(c.Context, p.s, routes.DeleteSource.With("force", boolParam(c.Bool("force"))), routes.None{}, r.MigrationID)
		var refused *api.Error
		switch {
		case errors.As(err, &refused) && c.Context.Err() == nil && refused.Code.ExitStatus() != api.ExitUnavailable:
			r.Blocked = refused.Message
			p.stay = append(p.stay, *r)
			continue
		case err != nil:
			return err
		}
		p.ids, p.bytes = append(p.ids, r.MigrationID), p.bytes+r.Location.SizeBytes
		if member := resp.Members["released_source"]; member != nil {
			p.deleted = append(p.deleted, member)
		}
		p.s.Say("Deleted %s, which volume %s has released.", r.Location.Path, r.VolumeName)
	}
	if err := p.print(); err != nil {
		return err
	}
	return p.stays()
}

func (p *poolSources) print() error {
	done := fmt.Sprintf("Deleted %s of pool %s, %s.", humanize.Count(len(p.ids), "released source"), p.pool, humanize.Bytes(p.bytes))
	if len(p.ids)+len(p.stay) == 0 {
		done = fmt.Sprintf("The journal of this host has no released source in pool %s that still exists.", p.pool)
	}
	switch {
	case p.s.JSON:
		return render.JSON(p.s.Stdout, map[string]any{"schema_version": api.SchemaVersion, "released_sources": p.deleted})
	case p.s.Quiet:
		return p.s.PrintLines(p.ids...)
	}
	return p.s.PrintLines(done)
}

func (p *poolSources) stays() error {
	if len(p.stay) == 0 {
		return nil
	}
	lines := make([]string, 0, len(p.stay))
	for i := range p.stay {
		r := &p.stay[i]
		lines = append(lines, fmt.Sprintf("%s, released by volume %s (migration %s): %s", r.Location.Path, r.VolumeName, r.MigrationID, r.Blocked))
	}
	return &session.AdvisedError{
		Err:    api.Errorf(api.CodeStateForbidden, "%s of pool %s cannot be deleted", humanize.Count(len(p.stay), "released source"), p.pool),
		Exit:   api.ExitRefused,
		Advice: strings.Join(lines, "\n"),
	}
}
