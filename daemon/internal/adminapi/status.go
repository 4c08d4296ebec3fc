// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/routes"
)

type statusAPI struct {
	Deps
	migrations *migrationAPI
}

func (s *statusAPI) show(r *http.Request, _ routes.None) (api.Status, error) {
	st := api.Status{
		Program: program, Version: s.Version, Host: s.HostName, HostID: s.HostID, Since: s.Since,
		Parts: []api.Check{s.libvirtPart(r.Context()), s.registryPart(r.Context()), s.epochPart(), s.tasksPart(), s.releasesPart(), s.instancesPart(), s.chainsPart()},
	}
	s.count(r.Context(), &st)
	for _, p := range st.Parts {
		st.Degraded = st.Degraded || p.Status != "ok"
	}
	if s.Certificates != nil {
		for _, c := range s.Certificates() { // it blocks nothing yet
			st.Degraded = st.Degraded || c.Status == "fail"
			st.Parts = append(st.Parts, c)
		}
	}
	sources := s.sourcesPart()
	st.NeedsOperator += s.Migrations.Released.GuestsOnReleasedSources() + runningElsewhere(s.Uplink.Notes(), s.Migrations.Released.KnownWrittenSources())
	st.Degraded = st.Degraded || sources.Status == "fail" // a written source blocks nothing
	st.Parts = append(st.Parts, sources)
	st.Parts = append(st.Parts, VersionsChecks(s.Peer)...) // only requests for a missing feature are refused
	st.Parts = append(st.Parts, s.Uplink.ViewChecks()...)
	if s.ShortOfRoom != nil { // this blocks nothing yet
		st.Parts = append(st.Parts, s.ShortOfRoom()...)
	}
	if s.Metrics != nil { // nothing depends on the metrics
		st.Parts = append(st.Parts, s.Metrics()...)
	}
	return st, nil
}

// libvirtTimeout is the timeout of a read here and at a scrape of the metrics.
const libvirtTimeout = 5 * time.Second

// libvirtPart calls a connected libvirt: for most of a minute a hung libvirt stays connected.
func (s *statusAPI) libvirtPart(ctx context.Context) api.Check {
	const name, advice = "libvirt", "systemctl status libvirtd"
	if !s.HV.Up() {
		return api.Check{Name: name, Status: "fail", Message: "libvirt does not answer; what needs it waits", Advice: advice}
	}
	bounded, cancel := context.WithTimeout(ctx, libvirtTimeout)
	defer cancel()
	if err := s.HV.Answers(bounded); err != nil {
		return api.Check{Name: name, Status: "fail", Message: fmt.Sprintf("connected, and without an answer for %s; what needs it waits", libvirtTimeout), Advice: advice}
	}
	return api.Check{Name: name, Status: "ok", Message: "connected"}
}

const refreshTimeout = time.Second

// registryPart reports whether the registry answers, why it accepts no changes, and the age of the
// last view. It calls a registry that did not answer again, because it may have been started
// since.
func (s *statusAPI) registryPart(ctx context.Context) api.Check {
	err := s.Uplink.Err()
	if err != nil && away(err) {
		bounded, cancel := context.WithTimeout(ctx, refreshTimeout)
		defer cancel()
		_ = s.Uplink.Refresh(bounded) // Err has the result
		err = s.Uplink.Err()
	}
	if err == nil {
		return api.Check{Name: "registry", Status: "ok", Message: "connected" + s.endpoint()}
	}
	if s.Uplink.Fence() != nil && !away(err) {
		return api.Check{Name: "registry", Status: "ok", Message: "connected; it has fenced this host"} // epochPart has the details
	}
	part := api.Check{Name: "registry", Status: "fail", Message: err.Error()}
	if away(err) {
		part.Advice = "look at volferry-registry; guests run on, and what needs the registry waits"
	}
	if _, age, known := s.Uplink.View(); known {
		part.Message += fmt.Sprintf("; lists are as they were %s ago", age.Round(time.Second))
	}
	return part
}

// endpoint returns which of several URLs is in use, and which did not answer. Only one registry is
// active, so it is no fault if the others do not answer.
func (s *statusAPI) endpoint() string {
	if s.Endpoints == nil {
		return ""
	}
	var inUse, silent []string
	for _, e := range s.Endpoints() {
		if e.InUse {
			inUse = append(inUse, " at "+e.URL)
		} else if e.Err != nil {
			silent = append(silent, e.URL)
		}
	}
	text := strings.Join(inUse, "")
	if len(silent) > 0 {
		text += "; when last tried it was not at " + strings.Join(silent, ", ")
	}
	return text
}

func (s *statusAPI) epochPart() api.Check {
	const name = "epoch"
	_, epoch := s.Uplink.Token()
	lost := s.Uplink.Lost()
	switch err := s.Uplink.Admit(); {
	case err != nil:
		return api.Check{Name: name, Status: "fail", Message: err.Error(), Advice: "it comes back by itself once libvirt and the registry answer"}
	case len(lost) > 0:
		return api.Check{
			Name: name, Status: "warn", Message: fmt.Sprintf("%d; taken from this host when it was fenced: %s", epoch, humanize.Count(len(lost), "disk")),
			Advice: "volferryctl doctor says which",
		}
	case epoch == 0:
		return api.Check{Name: name, Status: "warn", Message: "not known: the registry has not heard of this host yet"}
	}
	return api.Check{Name: name, Status: "ok", Message: strconv.FormatInt(epoch, 10)}
}

func (s *statusAPI) tasksPart() api.Check {
	return api.Check{Name: "tasks", Status: "ok", Message: fmt.Sprintf("%d at work for the registry", s.Uplink.TasksRunning())}
}

func (s *statusAPI) releasesPart() api.Check {
	const name = "releases"
	queued := s.Attachments.Queued()
	if len(queued) == 0 {
		return api.Check{Name: name, Status: "ok", Message: "none waits"}
	}
	volumes := make([]string, len(queued))
	for i := range queued {
		volumes[i] = queued[i].VolumeID
	}
	return api.Check{
		Name: name, Status: "warn",
		Message: fmt.Sprintf("%s, detached and still reserved until the registry is told: %s", humanize.Count(len(queued), "volume"), strings.Join(volumes, ", ")),
		Advice:  "the registry is told when it answers; volferryctl volume show says detaching until then",
	}
}

func (s *statusAPI) instancesPart() api.Check {
	const name = "domains"
	notes := s.Uplink.Notes()
	if len(notes) == 0 {
		return api.Check{Name: name, Status: "ok", Message: "as they were left"}
	}
	names := make([]string, len(notes))
	for i := range notes {
		names[i] = notes[i].InstanceName
	}
	status := "warn"
	if slices.ContainsFunc(notes, func(n uplink.Note) bool { return n.RunsElsewhere }) {
		status = "fail"
	}
	return api.Check{
		Name: name, Status: status, Message: fmt.Sprintf("%s, not as it was left: %s", humanize.Count(len(notes), "instance"), strings.Join(names, ", ")),
		Advice: "volferryctl doctor says what is different",
	}
}

// runningElsewhere counts the guests that run on another image than their volume, without the
// guests on released sources.
func runningElsewhere(notes []uplink.Note, sources []api.ReleasedSource) (count int) {
	for i := range notes {
		n := &notes[i]
		if n.RunsElsewhere && !slices.ContainsFunc(sources, func(l api.ReleasedSource) bool { return l.RunBy == n.InstanceName }) {
			count++
		}
	}
	return count
}

func (s *statusAPI) chainsPart() api.Check {
	problems := s.Migrations.Monitor.ChainProblems()
	found := make([]api.ChainProblem, len(problems))
	for i := range problems {
		found[i] = problems[i].ChainProblem
	}
	return api.CheckChains(found)
}

func (s *statusAPI) sourcesPart() api.Check {
	const name = "released"
	left := s.Migrations.Released.KnownWrittenSources()
	if len(left) == 0 {
		return api.Check{Name: name, Status: "ok", Message: "no source was seen to be written since its volume left it"}
	}
	which := make([]string, len(left))
	for i := range left {
		which[i] = fmt.Sprintf("%s of volume %s", left[i].Location.Path, left[i].VolumeName)
	}
	part := api.Check{
		Name: name, Status: "warn", Message: fmt.Sprintf("%s, written since the volume left it: %s", humanize.Count(len(left), "source"), strings.Join(which, ", ")),
		Advice: "volferryctl doctor says what can be done",
	}
	if runs := s.Migrations.Released.GuestsOnReleasedSources(); runs > 0 {
		part.Status = "fail"
		part.Message = fmt.Sprintf("%s a guest runs on now, and writes to instead of to its volume; ", humanize.Count(runs, "source")) + part.Message
	}
	return part
}

func (s *statusAPI) count(ctx context.Context, st *api.Status) {
	view, _, _ := s.Uplink.View()
	st.Volumes, st.Instances = len(view.Volumes), len(view.Instances)
	if s.Uplink.Up() { // otherwise the call would fail
		n := 0
		if err := s.Registry.EachVolume(ctx, func(*api.Volume) error { n++; return nil }); err == nil {
			st.Volumes = n
		}
		if insts, err := s.Registry.Instances(ctx); err == nil {
			st.Instances = len(insts)
		}
	}
	ops := OpenOps(s.Runner)
	st.NeedsOperator = api.CountStanding(ops)
	st.Parts = append(st.Parts, api.CheckOps(ops))
	open, err := s.migrations.all(ctx, false)
	if err != nil {
		st.Parts = append(st.Parts, api.Check{Name: "journal", Status: "fail", Message: err.Error()})
		return
	}
	st.Parts = append(st.Parts, api.Check{Name: "journal", Status: "ok", Message: "writable"})
	for i := range open {
		st.MigrationsActive++
		if open[i].State == api.MigrationNeedsOperator {
			st.NeedsOperator++
		}
	}
	st.Parts = append(st.Parts, api.CheckMoves(open), api.CheckOverlays(open, s.Instances.Unresumed()...))
}
