// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
	"github.com/volferry/volferry/internal/routes"
)

func targetFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "to-pool", Usage: "move it into `POOL`"},
		&cli.StringFlag{Name: "to-path", Usage: "move it to the file or block device at `PATH`"},
		&cli.StringFlag{Name: "to-format", DefaultText: "the format that it has", Usage: "write the destination as `FORMAT`, raw or qcow2", Action: cmdline.CheckWord("to-format")},
		&cli.StringFlag{
			Name: "method", Value: "auto", DefaultText: "auto", Action: cmdline.CheckWord("method"),
			Usage: "`METHOD`: overlay, mirror (QEMU copies the whole disk, without an overlay) or auto",
		},
		&cli.StringFlag{Name: "bandwidth", Usage: "limit the copy, and the read that verifies it, to `RATE` each, for example 100MiB/s; 0 for no limit"},
		paceFlag(),
		verifyFlag(),
		&cli.BoolFlag{Name: "delete-source", Usage: "delete the source after the move; without this it is kept"},
		&cli.BoolFlag{Name: "keep-base", Usage: "for a linked clone: copy only its own data, and leave its base images where they are"},
		checkpointsFlag(),
		&cli.StringFlag{
			Name: "allocation", DefaultText: api.AllocationKeep, Action: cmdline.CheckWord("allocation"),
			Usage: "`HOW` a new file gets its space: thick (all at once), thin (as data is written) or keep (like the source)",
		},
		&cli.BoolFlag{Name: "external-copy", Usage: "let another tool make the copy, before 'migration complete'"},
	}
}

func verifyFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "verify", DefaultText: "full; none for a mirror", Action: cmdline.CheckWord("verify"),
		Usage: "`HOW` to check the copy: full reads all of it back, none trusts it",
	}
}

func checkVerify(c *cli.Context) error {
	if c.Bool("delete-source") && c.String("verify") == api.VerifyNone {
		return cmdline.Usagef("%s--delete-source needs a verified copy: leave --verify none out", cmdline.Prefix(c))
	}
	return nil
}

func paceFlag() cli.Flag { return paceFlagOr(api.PaceGentle) }

// paceFlagOr returns the flag --pace. The help shows defaultText as its default.
func paceFlagOr(defaultText string) cli.Flag {
	return &cli.StringFlag{
		Name: "pace", DefaultText: defaultText, Action: cmdline.CheckWord("pace"),
		Usage: "`HOW` far the copy slows down for the guest: off, gentle (down to half of its speed) or full (as far as necessary)",
	}
}

func checkpointsFlag() cli.Flag {
	return &cli.StringFlag{Name: "checkpoints", Action: cmdline.CheckWord("checkpoints"), Usage: "`WHAT` happens to dirty bitmaps that the destination cannot have: drop loses the bitmaps of a volume that no guest writes to, and bitmaps that were made while the volume moved; without this flag the command is refused"}
}

func readTarget(c *cli.Context) (api.MigrationTarget, error) {
	t := api.MigrationTarget{
		ToPool:       c.String("to-pool"),
		ToFormat:     api.Format(c.String("to-format")),
		Method:       c.String("method"),
		CopyOptions:  api.CopyOptions{Verify: c.String("verify"), Pace: c.String("pace")},
		DeleteSource: c.Bool("delete-source"),
		ExternalCopy: c.Bool("external-copy"),
		KeepBase:     c.Bool("keep-base"),
		Checkpoints:  c.String("checkpoints"),
		Allocation:   c.String("allocation"),
	}
	var err error
	t.Overwrite = c.Bool(flagYes) && c.IsSet("to-path")
	if t.ToPath, err = absolute("to-path", c.String("to-path")); err != nil {
		return t, err
	}
	switch {
	case t.ToPool == "" && t.ToPath == "":
		return t, cmdline.Usagef("%sthe destination is missing: give --to-pool POOL or --to-path PATH", cmdline.Prefix(c))
	case t.ToPool != "" && t.ToPath != "":
		return t, cmdline.Usagef("%s--to-pool and --to-path exclude each other: give one", cmdline.Prefix(c))
	}
	if err := checkVerify(c); err != nil {
		return t, err
	}
	if text := c.String("bandwidth"); c.IsSet("bandwidth") {
		t.BandwidthBytesPerSecond, err = parseRate(text)
	}
	return t, err
}

func moveTo(c *cli.Context, s *session.Session, route routes.Route[api.MigrationTarget, api.Migration], target api.MigrationTarget) error {
	return askingOverwrite(c, s, target.Overwrite, func(overwrite bool) error {
		target.Overwrite = overwrite
		return runMigration(c.Context, s, route, target, c.Args().First())
	})
}

// askingOverwrite makes a move. It asks the user before a file with unknown data is overwritten;
// without a terminal the move stays refused.
func askingOverwrite(c *cli.Context, s *session.Session, agreed bool, move func(overwrite bool) error) error {
	err := move(agreed)
	var refused *api.Error
	if !errors.As(err, &refused) || refused.Details[api.DetailOverwrites] == nil || agreed {
		return err
	}
	if _, ok := terminal(c); !ok {
		return err
	}
	s.Say("%s", refused.Message)
	if err := confirm(c, s, fmt.Sprintf("Overwrite %v?", refused.Details[api.DetailOverwrites]), ""); err != nil {
		return err
	}
	return move(true)
}

// minBareRate is the smallest accepted rate without a unit: smaller ones are probably not meant as
// bytes.
const minBareRate = 64 << 10

// parseRate parses --bandwidth, in bytes per second: 100MiB/s or 100MiB. Zero is no limit.
func parseRate(text string) (int64, error) {
	number := strings.TrimSuffix(text, "/s")
	n, ok := cmdline.ParseQuantity(number)
	if !ok {
		return 0, cmdline.Usagef("--bandwidth %q is not a rate: write for example 100MiB/s or 1.5GiB/s, or 0 for no limit", text)
	}
	if bare := strings.Trim(number, "0123456789.") == ""; bare && n > 0 && n < minBareRate {
		return 0, cmdline.Usagef("--bandwidth %[1]q would be %[2]s bytes per second: write for example %[2]sMiB/s, or %[2]sB/s if that is meant", text, number)
	}
	return n, nil
}

// absolute refuses a relative path, because the daemon's working directory is not the user's.
func absolute(flag, path string) (string, error) {
	if path == "" || filepath.IsAbs(path) || !medium.Of(path).Path {
		return path, nil
	}
	if scheme, _, is := strings.Cut(path, "://"); is {
		return "", cmdline.Usagef("--%s %q: a volume cannot be at an address that begins with %s://; give a path, or an address that begins with %s, %s or %s. A LUN or a namespace has a path below /dev; a pool of the connector iscsi or nvme connects it, if it is not connected yet",
			flag, path, scheme, medium.NBDScheme, medium.NBDTCPScheme, medium.RBDScheme)
	}
	full, err := filepath.Abs(path)
	if err != nil {
		full = "/" + path
	}
	return "", cmdline.Usagef("--%s %q is relative: give the absolute path, for example %s", flag, path, full)
}
