// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/routes"
)

func poolCommand() *cli.Command {
	return &cli.Command{
		Name:  "pool",
		Usage: "libvirt storage pools: where volumes can live",
		Subcommands: []*cli.Command{
			{Name: "list", Usage: "list pools with their free space", Action: withSession(poolList), Flags: filterFlags("host")},
			{
				Name: "show", Usage: "show one pool", ArgsUsage: "POOL", Action: withSession(poolShow),
				Flags: []cli.Flag{hostFlag("the pool with this name on `HOST`")},
			},
			poolDrainCommand(),
		},
	}
}

func poolList(c *cli.Context, s *session.Session) error {
	pools, resp, err := session.List(c.Context, s, routes.ListPools)
	if err != nil {
		return err
	}
	if pools, resp, err = filterList(pools, resp, "pools", func(p api.Pool) bool { return matches(c, "host", p.Host) }); err != nil {
		return err
	}
	if err := checkHost(c, s, len(pools)); err != nil {
		return err
	}
	t := render.Table{Header: []string{"NAME", "HOST", "TYPE", "ACTIVE", "SHARED", "FREE", "CAPACITY", "PATH"}}
	pooled := make([]string, 0, len(pools))
	for _, p := range pools {
		pooled = append(pooled, p.Name)
		t.Add(p.Name, p.Host, p.Type, render.YesNo(p.Active), render.YesNo(p.Shared),
			roomText(&p, p.FreeBytes, humanize.Bytes)+ageText(&p, s.Now), roomText(&p, p.CapacityBytes, humanize.Bytes), p.Path)
	}
	if err := s.PrintList(resp, pooled, &t, "No pool is known: make one with 'virsh pool-define-as' and 'virsh pool-start'. A host without an answer of libvirt reports no pool; 'volferryctl status' on the host shows that."); err != nil || s.JSON {
		return err
	}
	for _, same := range equalRooms(pools) {
		s.Say("%s", same)
	}
	return nil
}

// roomText formats a size of a pool. It returns "-" for a pool of unknown capacity: an inactive
// pool, or the pool of a target.
func roomText(p *api.Pool, bytes int64, words func(int64) string) string {
	if p.CapacityBytes == 0 {
		return "-"
	}
	return words(bytes)
}

// ageText returns the age of a pool's values if its host is silent.
func ageText(p *api.Pool, now time.Time) string {
	if !p.Stale {
		return ""
	}
	return " (" + render.Ago(p.UpdatedAt, now) + ")"
}

// equalRooms returns lines about a host's pools that seem to share a filesystem: each pool reports
// the filesystem's whole space.
func equalRooms(pools []api.Pool) []string {
	type room struct {
		host           string
		free, capacity int64
	}
	named := map[room][]string{}
	var rooms []room
	for _, p := range pools {
		r := room{p.Host, p.FreeBytes, p.CapacityBytes}
		if !p.Active || p.CapacityBytes == 0 {
			continue
		}
		if named[r] == nil {
			rooms = append(rooms, r)
		}
		named[r] = append(named[r], p.Name)
	}
	var lines []string
	for _, r := range rooms {
		if names := named[r]; len(names) > 1 {
			last := len(names) - 1
			lines = append(lines, fmt.Sprintf("Pools %s and %s of host %s have the same free space and capacity: they are probably on one filesystem.", strings.Join(names[:last], ", "), names[last], r.host))
		}
	}
	return lines
}

func poolShow(c *cli.Context, s *session.Session) error {
	host, err := requestedHost(c, s)
	if err != nil {
		return err
	}
	p, resp, err := session.Show(c.Context, s, routes.ShowPool.With("host", host), c.Args().First())
	if err != nil {
		return explainHostChoice(err)
	}
	var r render.Record
	r.Add("name", p.Name)
	r.Add("host", p.Host)
	r.Add("type", p.Type)
	r.Add("path", p.Path)
	r.Add("active", render.YesNo(p.Active))
	r.Add("shared", render.YesNo(p.Shared))
	r.Add("free", roomText(p, p.FreeBytes, humanize.ExactBytes))
	r.Add("capacity", roomText(p, p.CapacityBytes, humanize.ExactBytes))
	asOf := render.Time(p.UpdatedAt)
	if p.Stale {
		asOf += ", and not reported since: is libvirt or volferryd of the host down?"
	}
	r.Add("as of", asOf)
	if err := s.PrintRecord(resp, p.Name, &r); err != nil || s.JSON || s.Quiet || len(p.Uses) == 0 {
		return err
	}
	return s.PrintLines(append([]string{""}, (&poolNeeds{uses: p.Uses}).lines()...)...)
}
