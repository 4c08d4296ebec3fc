// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/internal/shell"
)

func lifecycleCommands() []*cli.Command {
	return []*cli.Command{
		{
			Name: "start", Usage: "power an instance on", ArgsUsage: "INSTANCE", Action: withSession(instanceStart),
			Description: "The command is refused while the root volume is missing: attach one with '" + session.Program + " volume\n" +
				"attach VOLUME INSTANCE --root'. To bring back a shelved instance, use 'instance unshelve'.",
		},
		{
			Name: "stop", Usage: "shut an instance down", ArgsUsage: "INSTANCE", Action: withSession(instanceStop),
			Description: "The command presses the guest's power button, and waits until the guest is off. If the guest does\n" +
				"not shut down in time, it continues to run and the exit status is 6. --force does not ask the\n" +
				"guest: it cuts the power. It works at once, even while another stop or a shelve waits for the\n" +
				"guest, and is the only way to stop a paused guest.\n\n" +
				"For example: " + session.Program + " instance stop web1 --timeout 5m",
			Flags: stopFlags(),
		},
		simpleVerb("reboot", routes.RebootInstance, "ask an instance to reboot", "The command asks the guest to reboot, and does not wait for the reboot.", "Asked instance %s to reboot."),
		simpleVerb("pause", routes.PauseInstance, "pause a running instance", "The guest's memory stays in RAM: a paused guest does not survive a reboot of its host.", "Paused instance %s."),
		simpleVerb("unpause", routes.UnpauseInstance, "resume a paused instance", "This also resumes an instance that a disk error has paused; the guest then repeats the access.", "Resumed instance %s."),
		{
			Name: "repair", Usage: "set the disks of a definition to the volumes of the instance", ArgsUsage: "INSTANCE", Action: withSession(instanceRepair),
			Description: "For an instance with an older definition that was put back. While the instance is shut off, the\n" +
				"command sets each of its disks to the image of the volume, or to the overlay while the volume\n" +
				"moves. It writes no image, and does not change a definition that is right. Data that a guest has\n" +
				"written to another image stays there: 'volume which VOLUME' names that image. In the middle of an\n" +
				"operation that waits for an operator the guest may run: the definition gets the image that the\n" +
				"guest has open.",
			Flags: []cli.Flag{
				&cli.BoolFlag{Name: "source-unwritten", Usage: "you know that the guest has not run from the source of the move, an NBD export or RBD image, which Volferry cannot check"},
			},
		},
		{
			Name: "shelve", Usage: "stop an instance and keep only its definition, at the registry", ArgsUsage: "INSTANCE", Action: withSession(instanceShelve),
			Description: "Stops the instance like 'instance stop', keeps its definition at the registry and removes its\n" +
				"domain from the host. Its volumes stay attached, and nothing is deleted; the volumes can be\n" +
				"detached, and other volumes attached in their place. With --offload=false the domain stays, and\n" +
				"cannot be started.\n\n" +
				"For example: " + session.Program + " instance shelve web1 --timeout 5m",
			Flags: append([]cli.Flag{
				&cli.BoolFlag{Name: "offload", Value: true, Usage: "remove its domain from the host; --offload=false keeps the domain"},
			}, stopFlags()...),
		},
		{
			Name: "unshelve", Usage: "bring a shelved instance back, and start it", ArgsUsage: "INSTANCE", Action: withSession(instanceUnshelve),
			Description: "The instance comes back on the host that had it last, or on another host that has the pools of\n" +
				"its volumes. The command is refused while the root volume is missing.\n\n" +
				"For example: " + session.Program + " instance unshelve web1 --host hv2",
			Flags: []cli.Flag{hostFlag("bring it back on `HOST`")},
		},
		{
			Name: "lock", Usage: "refuse changes of an instance until it is unlocked", ArgsUsage: "INSTANCE", Action: withSession(instanceLock),
			UsageText: session.Program + " instance lock INSTANCE --reason TEXT",
			Description: "Until 'instance unlock', the instance cannot be started, stopped or shelved, and its volumes\n" +
				"cannot be attached or detached. Moves of its volumes continue: the guest does not notice them.\n\n" +
				"For example: " + session.Program + " instance lock web1 --reason 'audit until Friday, ask Ann'",
			Flags: []cli.Flag{&cli.StringFlag{Name: "reason", Usage: "`TEXT` that refusals quote"}},
		},
		simpleVerb("unlock", routes.UnlockInstance, "remove the lock of an instance", "The lock of a move with all guests paused cannot be removed; it ends with the move.", "Unlocked instance %s."),
	}
}

func stopFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "force", Usage: "cut the power instead of a shutdown by the guest"},
		&cli.StringFlag{Name: "timeout", DefaultText: "2m", Usage: "how long the guest may take to shut down, `TIME`: 300, 300s or 5m"},
	}
}

// simpleVerb returns a command that takes only an instance. done formats the final text from the
// instance's name.
func simpleVerb(verb string, route routes.Route[routes.None, api.Instance], usage, description, done string) *cli.Command {
	return &cli.Command{
		Name: verb, Usage: usage, ArgsUsage: "INSTANCE", Description: description,
		Action: withSession(func(c *cli.Context, s *session.Session) error {
			return actOnInstance(c, s, route, routes.None{}, func(i *api.Instance) string { return fmt.Sprintf(done, i.Name) })
		}),
	}
}

func actOnInstance[In any](c *cli.Context, s *session.Session, route routes.Route[In, api.Instance], in In, done func(*api.Instance) string) error {
	resp, finished, err := session.Perform(c.Context, s, route, in, c.Args().First())
	if err != nil || !finished {
		return err
	}
	i, resp, err := instanceAfter(c.Context, s, resp)
	if err != nil {
		return err
	}
	return s.PrintResult(resp, i.ID, done(i))
}

func instanceAfter(ctx context.Context, s *session.Session, resp session.Response) (*api.Instance, session.Response, error) {
	i := new(api.Instance)
	if err := resp.Decode("instance", i); err != nil || !resp.Has("op") {
		return i, resp, err
	}
	now, shown, err := session.ShowRetrying(ctx, s, routes.ShowInstance, i.ID)
	if err != nil {
		return nil, resp, err
	}
	return now, resp.With("instance", shown.Members["instance"]), nil
}

func instanceStart(c *cli.Context, s *session.Session) error {
	resp, finished, err := session.Perform(c.Context, s, routes.StartInstance, routes.None{}, c.Args().First())
	if err != nil || !finished {
		return err
	}
	var left []api.ReleasedSource
	if resp.Has("written_sources") {
		if err := resp.Decode("written_sources", &left); err != nil {
			return err
		}
	}
	i, resp, err := instanceAfter(c.Context, s, resp)
	if err != nil {
		return err
	}
	if err := s.PrintResult(resp, i.ID, "Started instance "+i.Name+"."); err != nil || s.JSON {
		return err
	}
	for j := range left {
		s.Say("The guest runs on its volume, which may lack data of another image: %s.\n%s", left[j].Difference(), left[j].WayOut())
	}
	return nil
}

func instanceRepair(c *cli.Context, s *session.Session) error {
	in := api.InstanceRepair{SourceUnwritten: c.Bool("source-unwritten")}
	return actOnInstance(c, s, routes.RepairInstance, in, func(i *api.Instance) string {
		return "The definition of instance " + i.Name + " names its volumes."
	})
}

func instanceStop(c *cli.Context, s *session.Session) error {
	seconds, err := stopTimeout(c)
	if err != nil {
		return err
	}
	in := api.InstanceStop{Force: c.Bool("force"), TimeoutSeconds: seconds}
	return actOnInstance(c, s, routes.StopInstance, in, func(i *api.Instance) string {
		if in.Force {
			return "Cut the power of instance " + i.Name + "."
		}
		return "Stopped instance " + i.Name + "."
	})
}

func instanceShelve(c *cli.Context, s *session.Session) error {
	seconds, err := stopTimeout(c)
	if err != nil {
		return err
	}
	in := api.InstanceShelve{KeepOnHost: !c.Bool("offload"), Force: c.Bool("force"), TimeoutSeconds: seconds}
	return actOnInstance(c, s, routes.ShelveInstance, in, func(i *api.Instance) string {
		where := "no host has it now"
		if i.State == api.InstanceShelved {
			where = "it stays on host " + render.OrDash(i.Host) + " and is not started there"
		}
		back := fmt.Sprintf("`%s` brings it back", shell.Line(session.Program, "instance", "unshelve", i.Name))
		if i.LacksRoot() {
			back += ", once it has a root volume again"
		}
		return fmt.Sprintf("Shelved instance %s: %s. %s.", i.Name, where, back)
	})
}

func instanceUnshelve(c *cli.Context, s *session.Session) error {
	name := c.Args().First()
	host, err := requestedHost(c, s)
	if err != nil {
		return err
	}
	resp, finished, err := session.Perform(c.Context, s, routes.UnshelveInstance, api.InstanceUnshelve{Host: host}, name)
	if err != nil || !finished {
		return err
	}
	if err := awaitStart(c.Context, s, resp, name); err != nil {
		return err
	}
	i, resp, err := instanceAfter(c.Context, s, resp)
	if err != nil {
		return err
	}
	return s.PrintResult(resp, i.ID, fmt.Sprintf("Unshelved instance %s: it is on host %s, %s.", i.Name, render.OrDash(i.Host), i.State))
}

func awaitStart(ctx context.Context, s *session.Session, resp session.Response, name string) error {
	if !resp.Has("op") {
		return nil
	}
	var unshelve api.Op
	if err := resp.Decode("op", &unshelve); err != nil {
		return err
	}
	_, err := s.Await(ctx, session.Work{Op: api.Op{ID: api.StartOp(unshelve.ID)}})
	var failed *session.AdvisedError
	if errors.As(err, &failed) && failed.Exit == api.ExitOpFailed {
		failed.Advice = fmt.Sprintf("Instance %s is unshelved and stopped; `%s` starts it.", name, shell.Line(session.Program, "instance", "start", name))
	}
	return err
}

func instanceLock(c *cli.Context, s *session.Session) error {
	in := api.InstanceLock{Reason: strings.TrimSpace(c.String("reason"))}
	if in.Reason == "" {
		return cmdline.Usagef("instance lock: --reason is missing: give a text for other operators, for example --reason 'audit until Friday, ask Ann'")
	}
	return actOnInstance(c, s, routes.LockInstance, in, func(i *api.Instance) string {
		return fmt.Sprintf("Locked instance %s: %s", i.Name, in.Reason)
	})
}

// stopTimeout parses --timeout as whole seconds, with or without a unit; 0 if the flag is not set.
func stopTimeout(c *cli.Context) (int, error) {
	if !c.IsSet("timeout") {
		return 0, nil
	}
	if c.Bool("force") {
		return 0, cmdline.Usagef("%s--force does not wait for the guest: leave --timeout out", cmdline.Prefix(c))
	}
	text := c.String("timeout")
	if seconds, err := strconv.Atoi(text); err == nil && seconds > 0 {
		return seconds, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second {
		return 0, cmdline.Usagef("%s--timeout %q is not a time: write for example 300 (seconds), 300s or 5m", cmdline.Prefix(c), text)
	}
	return int(d / time.Second), nil
}
