// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"cmp"
	"math"
	"regexp"

	"github.com/volferry/volferry/internal/api"
)

// Bounds of one report: more than any host has, and small enough for the database's single writer.
const (
	maxReportPools      = 256
	maxReportInstances  = 4096
	maxReportMigrations = 1024
	// maxProgressBytes is larger than any disk.
	maxProgressBytes = 1 << 56
)

// Report checks one report of a host.
func Report(in api.HostReport) error {
	if err := ID("host id", in.ID); err != nil {
		return err
	}
	if err := plainName("host name", in.Name); err != nil {
		return err
	}
	if err := cmp.Or(Text("version", in.Version), Text("boot id", in.BootID)); err != nil {
		return err
	}
	if in.Epoch < 0 {
		return Invalid("the epoch %d is negative", in.Epoch)
	}
	if in.Digest != "" && (in.Pools != nil || in.Instances != nil) {
		return Invalid("the report has a digest and what that stands for; it is one or the other")
	}
	return cmp.Or(checkReportPools(in.Pools), checkReportInstances(in.Instances), checkReportMigrations(in.Migrations))
}

func checkMany(what string, n, most int) error {
	if n > most {
		return Invalid("the report has %d %s and may have %d", n, what, most)
	}
	return nil
}

func checkReportPools(pools []api.Pool) error {
	if err := checkMany("pools", len(pools), maxReportPools); err != nil {
		return err
	}
	seen := make(map[string]bool, len(pools))
	for _, p := range pools {
		if err := cmp.Or(Required("pool name", p.Name), Text("pool type", p.Type), Printable("pool path", p.Path)); err != nil {
			return err
		}
		if len(p.Path) > MaxPath {
			return Invalid("the path of the pool %s is longer than %d bytes", p.Name, MaxPath)
		}
		if p.CapacityBytes < 0 || p.FreeBytes < 0 {
			return Invalid("the pool %s has a negative size", p.Name)
		}
		if seen[p.Name] {
			return Invalid("the pool %s is reported twice", p.Name)
		}
		seen[p.Name] = true
		if err := checkPoolUses(p); err != nil {
			return err
		}
	}
	return nil
}

func checkPoolUses(p api.Pool) error {
	if err := checkMany("uses of pool "+p.Name, len(p.Uses), api.MaxPoolUses); err != nil {
		return err
	}
	for _, u := range p.Uses {
		if err := cmp.Or(Text("domain of a use", u.Domain), Text("volume of a use", u.Volume), Text("kind of a use", u.What), Printable("path of a use", u.Path), Text("reason of an unknown use", u.Unknown)); err != nil {
			return err
		}
		if len(u.Path) > MaxPath {
			return Invalid("the path of a use of pool %s is longer than %d bytes", p.Name, MaxPath)
		}
	}
	return nil
}

func checkReportInstances(instances []api.InstanceReport) error {
	if err := checkMany("instances", len(instances), maxReportInstances); err != nil {
		return err
	}
	seen := make(map[string]bool, len(instances))
	for _, i := range instances {
		if err := cmp.Or(ID("instance id", i.ID), InstanceState(i.State), standstill(i.Standstill), InstanceNote(i.Note)); err != nil {
			return err
		}
		if seen[i.ID] {
			return Invalid("the instance %s is reported twice", i.ID)
		}
		seen[i.ID] = true
	}
	return nil
}

func standstill(s api.InstanceState) error {
	if s != "" && !s.Standstill() {
		return Invalid("%s is no state in which a guest stands still", Quote(string(s)))
	}
	return nil
}

func checkReportMigrations(migrations []api.Migration) error {
	if err := checkMany("migrations", len(migrations), maxReportMigrations); err != nil {
		return err
	}
	seen := make(map[string]bool, len(migrations))
	for _, m := range migrations {
		if err := checkReportMigration(m); err != nil {
			return err
		}
		if seen[m.ID] {
			return Invalid("the migration %s is reported twice", m.ID)
		}
		seen[m.ID] = true
	}
	return nil
}

// checkReportMigration checks the values of a migration that users see while it runs.
func checkReportMigration(m api.Migration) error {
	if err := cmp.Or(ID("migration id", m.ID), checkPhase(m), Text("verify of a migration", m.Verify), Text("pace of a migration", m.Pace), Text("pacing of a migration", m.Pacing), Text("method of a migration", m.Method)); err != nil {
		return err
	}
	for _, f := range []struct {
		what  string
		value int64
	}{
		{"bytes_total", m.BytesTotal},
		{"bytes_done", m.BytesDone},
		{"rate_bytes_per_second", m.RateBytesPerSecond},
		{"bandwidth_bytes_per_second", m.BandwidthBytesPerSecond},
		{"overlay_bytes", m.OverlayBytes},
	} {
		if f.value < 0 || f.value > maxProgressBytes {
			return Invalid("the %s %d of migration %s is out of range", f.what, f.value, m.ID)
		}
	}
	for _, f := range []struct {
		what  string
		value *float64
	}{{"exposed_seconds", &m.ExposedSeconds}, {"stall_ms.start", m.StallMS.Start}, {"stall_ms.job", m.StallMS.Job}, {"stall_ms.switch", m.StallMS.Switch}} {
		if f.value != nil && (*f.value < 0 || *f.value > math.MaxInt32) {
			return Invalid("the %s %g of migration %s is out of range", f.what, *f.value, m.ID)
		}
	}
	return Error("error of migration "+m.ID, m.Error)
}

var phaseRule = regexp.MustCompile(`^[a-z0-9_. -]{0,64}$`)

func checkPhase(m api.Migration) error {
	if !phaseRule.MatchString(m.Phase) {
		return Invalid("the phase %s of migration %s is not a few words", Quote(m.Phase), m.ID)
	}
	return nil
}
