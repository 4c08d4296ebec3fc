// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/internal/shell"
)

// hintInstance adds a hint to an error about a missing volume if its name is an instance's: the
// volumes of an adopted web1 have names such as web1-vda.
func hintInstance(c *cli.Context, s *session.Session, err error) error {
	var e *api.Error
	ref := c.Args().First()
	if !isNotFound(err) || !errors.As(err, &e) || ref == "" || !strings.HasPrefix(cmdline.Prefix(c), "volume ") {
		return err
	}
	instances, _, listErr := session.List(c.Context, s, routes.ListInstances)
	i := slices.IndexFunc(instances, func(i api.Instance) bool { return i.Name == ref })
	if listErr != nil || i < 0 {
		return err
	}
	names := session.LoadNames(c.Context, s, "volumes")
	for _, name := range names {
		if name == ref {
			return err // another object is missing
		}
	}
	var volumes []string
	for _, slot := range instances[i].BlockDeviceMappings {
		if slot.VolumeID != nil {
			volumes = append(volumes, fmt.Sprintf("%s (%s)", session.NameOr(names, *slot.VolumeID), slot.Device))
		}
	}
	advice := fmt.Sprintf("%s is an instance; its volumes: %s.", ref, strings.Join(volumes, ", "))
	if len(volumes) == 0 {
		advice = ref + " is an instance, and has no volume."
	}
	return &session.AdvisedError{Err: e, Exit: api.ExitNotFound, Advice: advice}
}

// hintVolume adds a hint to an error about a missing attachment if its name is a volume's:
// attachments have only ids.
func hintVolume(c *cli.Context, s *session.Session, err error) error {
	var e *api.Error
	ref := c.Args().First()
	if !isNotFound(err) || !errors.As(err, &e) || ref == "" || !strings.HasPrefix(cmdline.Prefix(c), "attachment ") {
		return err
	}
	for _, name := range session.LoadNames(c.Context, s, "volumes") {
		if name == ref {
			return &session.AdvisedError{
				Err: e, Exit: api.ExitNotFound,
				Advice: fmt.Sprintf("%s is a volume; `%s` shows the ids of its attachments.", ref, shell.Line(session.Program, "attachment", "list", "--volume", ref)),
			}
		}
	}
	return err
}
