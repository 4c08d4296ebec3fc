// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/internal/shell"
)

func instanceMigrateCommand() *cli.Command {
	all := targetFlags()
	return &cli.Command{
		Name: "migrate", Usage: "move all volumes of an instance to another pool, one after the other", ArgsUsage: "INSTANCE", Action: withSession(instanceMigrate),
		UsageText: session.Program + " instance migrate INSTANCE --to-pool POOL [FLAGS]",
		Description: "The instance stays on its host, and may run. Each volume is moved as by 'volume migrate', in the\n" +
			"order of 'instance show'. If one of them cannot be moved, the command is refused before the first\n" +
			"move. The command stops at the first move that fails; if you run it again, it moves the remaining\n" +
			"volumes. With --no-wait the moves start at once, if the host permits that.\n\n" +
			"For example: " + session.Program + " instance migrate web1 --to-pool fast --dry-run",
		Flags: []cli.Flag{cmdline.FindFlag(all, "to-pool"), cmdline.FindFlag(all, "bandwidth"), paceFlag(), cmdline.FindFlag(all, "delete-source"), cmdline.FindFlag(all, "checkpoints"), dryRunFlag()},
	}
}

func instanceMigrate(c *cli.Context, s *session.Session) error {
	if c.String("to-pool") == "" {
		return cmdline.Usagef("instance migrate: --to-pool is missing: give the destination, --to-pool POOL")
	}
	target, err := readTarget(c)
	if err != nil {
		return err
	}
	p, err := planInstance(c.Context, s, c.Args().First(), target)
	switch {
	case err != nil:
		return err
	case c.Bool("dry-run"):
		return showInstancePlan(s, p)
	}
	if err := p.refusal(); err != nil {
		return err
	}
	run := instanceMove{s: s, plan: p, target: target, again: againText(c, p)}
	if s.NoWait {
		return run.begin(c.Context)
	}
	return run.perform(c.Context)
}

func againText(c *cli.Context, p *instancePlan) string {
	words := []string{session.Program, "instance", "migrate", p.InstanceName, "--to-pool", p.ToPool}
	if c.IsSet("bandwidth") {
		words = append(words, "--bandwidth", c.String("bandwidth"))
	}
	if c.IsSet("pace") {
		words = append(words, "--pace", c.String("pace"))
	}
	if c.Bool("delete-source") {
		words = append(words, "--delete-source")
	}
	if c.IsSet("checkpoints") {
		words = append(words, "--checkpoints", c.String("checkpoints"))
	}
	return shell.Line(words...)
}

// instanceMove moves the volumes of an instance. If this program dies, only the later moves do not
// begin.
type instanceMove struct {
	s          *session.Session
	plan       *instancePlan
	target     api.MigrationTarget
	again      string
	done       []json.RawMessage
	ids, names []string
}

func (r *instanceMove) perform(ctx context.Context) error {
	for i := range r.plan.Volumes {
		v := &r.plan.Volumes[i]
		if v.State == planThere {
			continue
		}
		m, resp, err := r.move(ctx, v)
		if err != nil {
			return r.stoppedAt(i, err)
		}
		r.add(m, resp)
		if r.s.Progress != session.ProgressJSON && !r.s.JSON && !r.s.Quiet {
			if err := r.s.PrintLines(session.OutcomeText(m)...); err != nil {
				return err
			}
		}
	}
	if r.s.Progress == session.ProgressJSON {
		return nil
	}
	return r.print(fmt.Sprintf("All volumes of instance %s are in pool %s: %s moved.", r.plan.InstanceName, r.plan.ToPool, humanize.Count(len(r.ids), "volume")))
}

// move moves one volume to the pool, or waits for its present migration there.
func (r *instanceMove) move(ctx context.Context, v *volumePlan) (*api.Migration, session.Response, error) {
	var resp session.Response
	var err error
	m := v.Migration
	if m != nil {
		m, resp, err = awaitMigration(ctx, r.s, m)
	} else if resp, _, err = session.Perform(ctx, r.s, routes.MigrateVolume, r.target, v.VolumeID); err == nil {
		m = new(api.Migration)
		err = resp.Decode("migration", m)
	}
	if err == nil && m.State != api.MigrationCompleted {
		err = api.Errorf(api.CodeConflict, "volume %s was not moved: migration %s is %s", v.VolumeName, m.ID, m.State)
	}
	return m, resp, err
}

func (r *instanceMove) begin(ctx context.Context) error {
	for i := range r.plan.Volumes {
		v := &r.plan.Volumes[i]
		if v.State != planPending {
			continue
		}
		m, resp, err := session.Change(ctx, r.s, routes.MigrateVolume, r.target, v.VolumeID)
		if err != nil {
			return r.stoppedAt(i, err)
		}
		r.add(m, resp)
	}
	r.s.Say("Started %s. Follow one: %s migration watch MIGRATION", humanize.Count(len(r.ids), "move"), session.Program)
	return r.print(r.ids...)
}

func (r *instanceMove) add(m *api.Migration, resp session.Response) {
	r.done = append(r.done, resp.Members["migration"])
	r.ids = append(r.ids, m.ID)
	r.names = append(r.names, render.VolumeName(m))
}

func (r *instanceMove) print(lines ...string) error {
	if r.done == nil {
		r.done = []json.RawMessage{}
	}
	all, err := json.Marshal(r.done)
	if err != nil {
		return fmt.Errorf("write the migrations: %w", err)
	}
	resp := session.Response{}.With("migrations", all)
	switch {
	case r.s.JSON:
		return render.JSON(r.s.Stdout, resp.Members)
	case r.s.Quiet:
		return r.s.PrintLines(r.ids...)
	}
	return r.s.PrintLines(lines...)
}

// stoppedAt returns the error of volume number i, with the finished moves, the others, and the
// command that continues.
func (r *instanceMove) stoppedAt(i int, err error) error {
	var left []string
	for _, v := range r.plan.Volumes[i:] {
		if v.State != planThere {
			left = append(left, v.VolumeName)
		}
	}
	rest := fmt.Sprintf("Not in pool %s yet: %s.\nMove the remaining volumes: %s", r.plan.ToPool, strings.Join(left, ", "), r.again)
	if len(r.names) > 0 {
		done := "Moved before: "
		if r.s.NoWait {
			done = "Started before, and still running: "
		}
		rest = done + strings.Join(r.names, ", ") + ".\n" + rest
	}
	var (
		detached *session.DetachedError
		advised  *session.AdvisedError
		answer   *api.Error
	)
	switch {
	case errors.As(err, &detached):
		return &session.DetachedError{Advice: detached.Advice + "\n" + rest}
	case errors.As(err, &advised):
		rest = strings.TrimPrefix(advised.Advice+"\n"+rest, "\n")
		return &session.AdvisedError{Err: r.detail(advised.Err, left), Exit: advised.Exit, Advice: rest}
	case errors.As(err, &answer):
		return &session.AdvisedError{Err: r.detail(answer, left), Exit: answer.Code.ExitStatus(), Advice: rest}
	}
	return err
}

func (r *instanceMove) detail(e *api.Error, left []string) *api.Error {
	with := *e
	with.Details = maps.Clone(e.Details)
	return with.With("migrations", r.ids).With("volumes_left", left)
}
