// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/sqlitedb"
	"github.com/volferry/volferry/registry/internal/hostcache"
	"github.com/volferry/volferry/registry/internal/validate"
)

const (
	// A host may have so many reports that say something new taken at once, and then so
	// many a second. Daemons report once a second at the most.
	reportsAtOnce    = 60
	reportsPerSecond = 2
)

// Report takes a host's report, and answers with the host and the registry's mark. A new
// host gets epoch 1. A host that is fenced, or comes with an epoch other than the
// registry's, gets stale_epoch and changes nothing, except that it was seen. Epoch 0 is a
// host that has lost its state; it is the same host if it was never fenced.
//
// Nil pools mean that the daemon does not know them now: the last report of them stands.
// The same holds for migrations. Reports carry no op id: only the last one counts.
//
// A report with a digest stands for the report that was answered with that digest. If that
// is not the last stored report of the host, the answer is a conflict with
// DetailReportWhole.
func (s *Store) Report(ctx context.Context, call Call, in api.HostReport) (api.Host, error) {
	if err := validate.Report(in); err != nil {
		return api.Host{}, err
	}
	if call.Host != nil && call.Host.ID != in.ID {
		return api.Host{}, notYourHost("report for", in.Name)
	}
	now := s.now()
	host, told, known := s.hosts.Touch(in.ID, now)
	if in.Mark != nil && *in.Mark != told {
		if err := s.ObserveMark(ctx, in.ID, in.Name, *in.Mark); err != nil {
			return api.Host{}, err
		}
	} else {
		s.history.ClearDoubt(in.ID)
	}
	// A report that says nothing new is refused as well, so that the host can
	// show why the registry does not work; and one of an older epoch with the same
	// error, or the host would let go of what it lost by an older state of things.
	err := s.writable()
	if err != nil {
		return api.Host{}, err
	}
	s.hosts.SetCompared(in.ID)
	if known {
		if err := admitReport(host, in.Epoch); err != nil {
			return api.Host{}, err
		}
	}
	if in.Digest == "" {
		if host, in.Digest, err = s.takeReport(ctx, call, in, host, now); err != nil {
			return api.Host{}, err
		}
	} else if !s.hosts.HasReport(in.ID, in.Digest) {
		return api.Host{}, api.Errorf(api.CodeConflict, "the registry does not have the report of host %s that the digest stands for; it wants the whole report", in.Name).
			With(api.DetailReportWhole, true)
	}
	if err := s.cacheProgress(ctx, in); err != nil {
		return api.Host{}, err
	}
	h, mark := s.hostDocument(host), s.history.Now()
	h.Mark, h.ReportDigest, h.ReportEverySeconds = &mark, in.Digest, int(s.reportEvery()/time.Second)
	s.hosts.SetMark(in.ID, mark)
	return h, nil
}

// takeReport takes what a whole report says of a host, and returns the host and the
// digest of the report.
func (s *Store) takeReport(ctx context.Context, call Call, in api.HostReport, host hostcache.Row, now time.Time) (hostcache.Row, string, error) {
	digest, err := reportDigest(in)
	if err != nil {
		return host, "", err
	}
	if s.hosts.Update(in, digest) {
		return host, digest, nil
	}
	if call.Host != nil {
		if ok, _ := s.reportLimit.Allow(in.ID, now); !ok {
			return host, "", api.Errorf(api.CodeRegistryUnavailable, "the report of host %s was not taken: a host may report something new %d times at once and %d times a second; try again later",
				in.Name, reportsAtOnce, reportsPerSecond).
				With(api.DetailReportLater, true)
		}
	}
	end, err := s.hosts.BeginReport(ctx, in.ID)
	if err != nil {
		return host, "", err
	}
	defer end()
	if host, err = s.storeReport(ctx, call, in, digest); err != nil {
		return host, "", err
	}
	s.hosts.Touch(in.ID, now)
	s.hosts.SetCompared(in.ID) // it may be new
	s.hosts.Update(in, digest)
	return host, digest, nil
}

// admitReport is the check of the token of reports.
func admitReport(h hostcache.Row, epoch int64) error {
	if !h.Fenced && (epoch == h.Epoch || epoch == 0 && h.Epoch == 1) {
		return nil
	}
	return staleEpoch(h, epoch)
}

// reportDigest is over the part of a report that the database keeps.
func reportDigest(in api.HostReport) (string, error) {
	in.Epoch, in.Mark, in.Migrations = 0, nil, nil
	in.Pools = slices.Clone(in.Pools)
	for i := range in.Pools {
		in.Pools[i].CapacityBytes, in.Pools[i].FreeBytes, in.Pools[i].UpdatedAt = 0, 0, time.Time{}
	}
	b, err := json.Marshal(in)
	if err != nil {
		return "", fmt.Errorf("encode report: %w", err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// storeReport writes down the part of a report that the database keeps.
func (s *Store) storeReport(ctx context.Context, call Call, in api.HostReport, digest string) (hostcache.Row, error) {
	call.Key = ""
	return mutateIf(ctx, s, call, "host.report", in, admitWritable, func(ctx context.Context, tx *Tx) (hostcache.Row, error) {
		was, err := tx.hostRow(ctx, in.ID)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return was, err
		}
		if err == nil {
			// It may have been fenced since the look in memory.
			if err := admitReport(was, in.Epoch); err != nil {
				return was, err
			}
		}
		now, err := s.storeHost(ctx, tx, in)
		if err != nil {
			return now, err
		}
		if err := tx.replacePools(ctx, in.ID, s.trustedPools(in.Pools, in.ID, in.Name)); err != nil {
			return now, err
		}
		foreign, err := tx.storeInstances(ctx, in)
		if err != nil {
			return now, err
		}
		tx.OnCommit(func() {
			s.hosts.Put(now, digest)
			s.hosts.SetForeign(in.ID, foreign)
		})
		return now, tx.auditReport(ctx, was, now)
	})
}

// storeHost makes or changes the row of a host and returns it.
func (s *Store) storeHost(ctx context.Context, tx *Tx, in api.HostReport) (hostcache.Row, error) {
	tx.cache.hosts.invalidate()
	_, err := tx.ExecContext(ctx, `INSERT INTO hosts (id, name, version, boot_id, epoch, last_seen_us, created_us)
		VALUES (?1, ?2, ?3, ?4, 1, ?5, ?5)
		ON CONFLICT (id) DO UPDATE SET name = ?2, version = ?3, boot_id = ?4, last_seen_us = ?5`,
		in.ID, in.Name, in.Version, in.BootID, tx.At.UnixMicro())
	if sqlitedb.Violates(err, "hosts.name") {
		return hostcache.Row{}, s.nameTaken(ctx, tx, in.Name)
	}
	if err != nil {
		return hostcache.Row{}, fmt.Errorf("store host: %w", err)
	}
	return tx.hostRow(ctx, in.ID)
}

// nameTaken is the refusal of a host whose name another id has: another machine, or the same
// one before it was installed again. One that reports right now is another machine.
func (s *Store) nameTaken(ctx context.Context, tx *Tx, name string) error {
	h, err := scanHostRow(tx.QueryRowContext(ctx, hostQuery+" WHERE name = ?", name))
	if err != nil {
		return fmt.Errorf("look up the host of the name %s: %w", name, err)
	}
	last := h.LastSeen
	if at, ok := s.hosts.LastSeen(h.ID); ok {
		last = at
	}
	refused := fmt.Sprintf("the name %s belongs to another host (id %s, last report %s)", name, h.ID, last.UTC().Format(time.RFC3339))
	if !h.Fenced && s.isUp(h.ID, last) {
		return api.Errorf(api.CodeConflict, "%s, which reports right now; give one of the two another name (host_name in volferryd.toml)", refused)
	}
	return api.Errorf(api.CodeConflict, "%s; if that is another machine, give one of the two another name (host_name in volferryd.toml); "+
		"if it is this machine, which was installed again, give it back that id, and what it had is its own again: "+
		"without TLS by `%s > /var/lib/volferry/host-id` while volferryd is stopped, with TLS by a certificate from `%s`; "+
		"docs/how-to/reinstall-a-host.md has all of it", refused, api.ShellLine("echo", h.ID), api.ShellLine("volferry-registry", "issue-cert", "host", name, "--id", h.ID, "--out", name+"-again"))
}

// auditReport tells of what is news in a report: that a host is new, has another
// name, or was booted.
func (tx *Tx) auditReport(ctx context.Context, was, now hostcache.Row) error {
	var what string
	switch {
	case was.ID == "":
		what = "host.register"
	case was.Name != now.Name:
		what = "host.rename"
	case was.BootID != now.BootID:
		what = "host.boot"
	default:
		return nil
	}
	return tx.Audit(ctx, api.Event{
		What: what, Host: now.Name, Object: "host/" + now.ID, From: was.Name, To: now.Name, Token: &api.Token{Epoch: now.Epoch},
		Details: map[string]any{"boot_id": now.BootID, "version": now.Version},
	})
}
