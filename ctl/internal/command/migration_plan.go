// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/routes"
)

func dryRunFlag() cli.Flag {
	return &cli.BoolFlag{Name: "dry-run", Usage: "show the plan, or why the command is refused, and do nothing"}
}

func showPlan(c *cli.Context, s *session.Session, target api.MigrationTarget) error {
	if target.PauseAll || target.Method == api.MethodLive {
		return showPausePlan(c, s, target)
	}
	p, resp, err := session.Ask(c.Context, s, routes.PlanMigration, target, c.Args().First())
	if err != nil {
		return err
	}
	r := planRecord(p)
	if err := s.PrintRecord(resp, p.VolumeID, r); err != nil {
		return err
	}
	s.Say("Nothing was done. Without --dry-run the volume is moved.")
	return nil
}

func planRecord(p *api.MigrationPlan) *render.Record {
	r := &render.Record{}
	r.Add("volume", p.VolumeName+", "+volumeSize(p.Src.SizeBytes, p.Src, humanize.Bytes))
	r.Add("instance", instanceOf(p))
	r.Add("from", placeText(p.Src))
	r.Add("to", destinationPlace(p)+", "+destinationText(p))
	r.Add("method", methodText(p))
	r.Add("verify", p.Verify)
	r.Add("source", sourceText(p))
	r.AddIf("warning", p.Warning)
	return r
}

func showPausePlan(c *cli.Context, s *session.Session, target api.MigrationTarget) error {
	e, resp, err := session.Ask(c.Context, s, routes.EstimateMigration, target, c.Args().First())
	if err != nil {
		return err
	}
	if s.JSON {
		return render.JSON(s.Stdout, resp.Members)
	}
	if err := s.PrintLines(estimateLines(*e, target)...); err != nil {
		return err
	}
	done := "the guests are saved and the volume is moved"
	if target.Method == api.MethodLive {
		done = "the volume is copied while its guests write, and they are saved once, at the end, for the switch"
	}
	s.Say("Nothing was done. Without --dry-run %s.", done)
	return nil
}

// destinationPlace returns the volume's destination. <id> is the part that is unknown before the
// move.
func destinationPlace(p *api.MigrationPlan) string {
	text := placeText(p.Dst)
	if strings.Contains(p.Dst.Name, "<id>") {
		text += ", where <id> is the beginning of the migration's id"
	}
	return text
}

func placeText(l api.Location) string { return render.Location(l) + " (" + string(l.Format) + ")" }

func instanceOf(p *api.MigrationPlan) string {
	if p.InstanceID == "" {
		return "none"
	}
	return p.Device + " of " + p.InstanceName
}

func destinationText(p *api.MigrationPlan) string {
	text := "which exists and is overwritten"
	switch {
	case p.CreatesDestination:
		text = "which is created"
	case p.ConnectsDestination:
		text = "which is connected for the move; its existence and size are checked only then"
	}
	if p.DstLeftBy != "" {
		text += " (the released source of migration " + p.DstLeftBy + ", and nothing has written to it since)"
	}
	if p.Allocation != "" {
		text += ", " + p.Allocation
	}
	if p.NeededBytes != nil && p.FreeBytes != nil {
		text += fmt.Sprintf("; takes up to %s of %s free", humanize.Bytes(*p.NeededBytes), humanize.Bytes(*p.FreeBytes))
	}
	if p.Dst.IsLinkedClone() {
		text += ", over the base images of the volume, which stay where they are"
	}
	if p.Dst.IsSlice() {
		text += fmt.Sprintf("; the volume is the first %s of %s", humanize.Bytes(p.Dst.SizeBytes), humanize.Bytes(p.Dst.ImageBytes))
	}
	return text
}

func methodText(p *api.MigrationPlan) string {
	if p.OverlayFreeBytes == nil {
		return p.Method
	}
	return fmt.Sprintf("%s: the guest's writes during the move go to %s, where %s are free", p.Method, p.OverlayDir, humanize.Bytes(*p.OverlayFreeBytes))
}

func sourceText(p *api.MigrationPlan) string {
	if p.DeleteSource {
		return "deleted after the move"
	}
	return "kept"
}
