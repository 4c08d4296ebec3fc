// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

func volumeCreate(c *cli.Context, s *session.Session) error {
	if c.String("size") == "" {
		return cmdline.Usagef("volume create: --size is missing: give for example --size 20GiB")
	}
	size, err := cmdline.ParseDiskSize(c.String("size"))
	if err != nil {
		return err
	}
	in := api.VolumeCreate{
		Name:      c.Args().First(),
		SizeBytes: size,
		Type:      c.String("type"),
		Pool:      c.String("pool"),
		Format:    api.Format(c.String("format")),
		Bootable:  c.Bool("bootable"),
	}
	return addVolume(c, s, routes.CreateVolume, in.Name, in, "Created")
}

func volumeAdopt(c *cli.Context, s *session.Session) error {
	in := api.VolumeAdopt{
		Name:     c.Args().First(),
		Pool:     c.String("pool"),
		Format:   api.Format(c.String("format")),
		Type:     c.String("type"),
		Bootable: c.Bool("bootable"),
		Force:    c.Bool("force"),
	}
	var err error
	if in.Path, err = absolute("path", c.String("path")); err != nil {
		return err
	}
	switch {
	case in.Path == "" && in.Pool == "":
		return cmdline.Usagef("volume adopt: the image is missing: give --path PATH or --pool POOL")
	case in.Path != "" && in.Pool != "":
		return cmdline.Usagef("volume adopt: --path and --pool exclude each other: give one")
	case in.Format == "":
		return cmdline.Usagef("volume adopt: --format is missing: give --format raw or --format qcow2, whichever the image is")
	case in.Pool != "":
		in.VolumeName = in.Name
		if name := c.String("volume-name"); name != "" {
			in.VolumeName = name
		}
	}
	return addVolume(c, s, routes.AdoptVolume, in.Name, in, "Adopted")
}

func addVolume[In any](c *cli.Context, s *session.Session, route routes.Route[In, api.Volume], name string, in In, verb string) error {
	host, err := requestedHost(c, s)
	if err != nil {
		return err
	}
	v, resp, finished, err := performOnVolume(c.Context, s, route.With("host", host), name, in)
	if err != nil || !finished {
		return explainHostChoice(err)
	}
	return s.PrintResult(resp, v.ID, fmt.Sprintf("%s volume %s (%s) at %s%s.", verb, v.Name, v.ID, render.Location(v.Location), onHostText(v.Host)))
}

// performOnVolume sends a request about the named volume, and returns the volume after the work;
// finished is false if the user did not want to wait.
func performOnVolume[In any](ctx context.Context, s *session.Session, route routes.Route[In, api.Volume], name string, in In, refs ...string) (v *api.Volume, resp session.Response, finished bool, err error) {
	resp, finished, err = session.Perform(ctx, s, route, in, refs...)
	if err != nil || !finished {
		return nil, resp, false, err
	}
	if !resp.Has("volume") {
		if resp, err = session.Get(ctx, s, routes.ShowVolume, name); err != nil {
			return nil, resp, false, err
		}
	}
	v = new(api.Volume)
	return v, resp, true, resp.Decode("volume", v)
}
