// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"strings"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/registry/internal/store"
)

const (
	checkOK   = "ok"
	checkWarn = "warn"
	checkFail = "fail"
)

type statusAPI struct {
	*Config
	views *views
	since time.Time
}

func (s *statusAPI) databaseCheck() api.Check {
	reason, readOnly := s.Store.ReadOnly()
	if !readOnly {
		return api.Check{Name: "database", Status: checkOK, Message: "takes changes"}
	}
	return api.Check{
		Name: "database", Status: checkFail, Message: "read-only: " + reason,
		Advice: "no volume is attached, detached or moved until you have compared the registry with the hosts and run " + Program + " accept-restore",
	}
}

func silentHosts(hosts []api.Host, now time.Time) []string {
	var out []string
	for _, h := range hosts {
		if h.Status == api.HostSuspect && h.LastSeenAt != nil {
			out = append(out, fmt.Sprintf("%s (for %s)", h.Name, now.Sub(*h.LastSeenAt).Round(time.Second)))
		}
	}
	return out
}

func hostsCheck(c store.Counts, silent, doubted []string) api.Check {
	up, suspect, fenced := c.Hosts[api.HostUp], c.Hosts[api.HostSuspect], c.Hosts[api.HostFenced]
	check := api.Check{Name: "hosts", Status: checkOK, Message: fmt.Sprintf("%d up, %d suspect, %d fenced", up, suspect, fenced)}
	if suspect > 0 {
		check.Status = checkWarn
		check.Advice = "look at volferryd on the suspect hosts; what they hold stays held, and what is shown of them is as old as their last report"
		if len(silent) > 0 {
			check.Message += "; no report from " + strings.Join(silent, ", ")
		}
	}
	if c.Behind > 0 {
		check.Status = checkWarn
		check.Message += fmt.Sprintf(", %d not back since the restore", c.Behind)
		check.Advice = "start volferryd on the hosts that `volferryctl host list` shows as behind, or fence those that are gone: volumes that they may have are given to nobody"
	}
	if len(doubted) > 0 {
		check.Status = checkFail
		check.Message += "; not believed: " + strings.Join(doubted, ", ")
		check.Advice = "these hosts say that they were told what is not in the registry's history, and nothing that they ask for is done: compare them with the registry, " +
			"fence a host that is not yours any more, or see " + Program + " accept-restore if the database is from an old backup"
	}
	return check
}

func locksCheck(c store.Counts) api.Check {
	check := api.Check{Name: "locks", Status: checkOK, Message: counted(c.Locks, "volume is locked by a migration", "volumes are locked by migrations")}
	if c.NeedsOperator > 0 {
		check.Status = checkWarn
		check.Advice = fmt.Sprintf("%d of them need an operator: volferryctl migration list", c.NeedsOperator)
	}
	return check
}

func (s *statusAPI) auditCheck() api.Check {
	last, looked := s.Store.Trail.LastCheck()
	switch {
	case !looked:
		return api.Check{Name: "audit trail", Status: checkOK, Message: "is being read"}
	case last.Err != nil:
		return api.Check{
			Name: "audit trail", Status: checkFail, Message: last.Err.Error(),
			Advice: "somebody changed the database behind the registry's back: compare it with a backup",
		}
	}
	return api.Check{Name: "audit trail", Status: checkOK, Message: verified(last.Events) + ", " + last.At.Format(time.RFC3339)}
}

func verified(events int64) string {
	if events == 0 {
		return "there was no event yet when it was last read"
	}
	return counted(events, "event was as it was written when last read", "events were as they were written when last read")
}

func counted[N int | int64](n N, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

func sharedCheck(p store.SharedPools) api.Check {
	check := api.Check{Name: "shared pools", Status: checkOK, Message: "as the site has named them"}
	names := strings.Join(p.Reported, ", ")
	switch {
	case len(p.Reported) == 0 && !p.Confirmed:
		check.Message = "none is reported"
	case len(p.Reported) > 0 && p.Confirmed:
		check.Status, check.Message = checkWarn, "hosts report as shared, and are not believed: "+names
		check.Advice = "add them, with their hosts, to shared_pools of the registry, or take them out of that of the hosts"
	case len(p.AnyHost) > 0:
		check.Message = "as the site has named them; any host that says so shares " + strings.Join(p.AnyHost, ", ") + ": shared_pools can name the hosts too"
	case len(p.Reported) > 0:
		check.Message = "on the word of hosts alone: " + names + "; shared_pools in the registry's configuration settles it"
	}
	return check
}

func tlsCheck(trouble error) api.Check {
	if trouble == nil {
		return api.Check{Name: "tls", Status: checkOK, Message: "certificates and deny-list are in use as they are"}
	}
	return api.Check{
		Name: "tls", Status: checkFail, Message: trouble.Error(),
		Advice: "the last good files stay in use: what was denied or replaced since is not; put the files right",
	}
}

var renewals = map[string]string{
	"server":    Program + " issue-cert server --replace; nothing needs to be restarted",
	"authority": "make a new authority in time (" + Program + " init-ca in another directory); every certificate has to be issued anew by it",
}

func (s *statusAPI) certificateChecks() []api.Check {
	if s.Certificates == nil {
		return nil
	}
	var checks []api.Check
	for _, l := range s.Certificates() {
		checks = append(checks, l.Check(time.Now(), renewals[l.Name]))
	}
	return checks
}

func elsewhereCheck(instances []string) api.Check {
	return api.Check{
		Name: "domains", Status: checkFail,
		Message: fmt.Sprintf("%s, running with disks that are not where the volumes are: %s", humanize.Count(len(instances), "instance"), strings.Join(instances, ", ")),
		Advice:  "volferryctl instance show says what is different; docs/how-to/recover.md (A guest on another image than its volume)",
	}
}
