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
	"github.com/volferry/volferry/internal/shell"
	"github.com/volferry/volferry/internal/sqlitedb"
	"github.com/volferry/volferry/registry/internal/hostcache"
	"github.com/volferry/volferry/registry/internal/ratelimit"
	"github.com/volferry/volferry/registry/internal/validate"
)

const (
	// A host may send this many reports with changes at once, and this many per second. Daemons
	// report at most once a second.
	reportsAtOnce    = 60
	reportsPerSecond = 2
)

// Reports stores the hosts' reports about themselves, their pools, instances and migrations.
type Reports struct {
	db       *DB
	hosts    *Hosts
	pools    *Pools
	marks    *Marks
	progress *Progress
	limit    *ratelimit.Limit
}

// Receive stores a host's report and returns the host with the registry's mark. A new host gets
// epoch 1. A fenced host, or a host with an epoch other than the registry's, gets stale_epoch, and
// only the time of its last report changes. Epoch 0 means that the host has lost its state;
// Receive accepts it if the host was never fenced.
//
// Nil pools or migrations mean that the daemon does not know them now, and the last reported ones
// stay.
//
// A report may consist of a digest alone; it stands for the last whole report with this digest. If
// that is not the host's last stored report, Receive returns a conflict with DetailReportWhole.
func (s *Reports) Receive(ctx context.Context, call Call, in api.HostReport) (api.Host, error) {
	if err := validate.Report(in); err != nil {
		return api.Host{}, err
	}
	if call.Host != nil && call.Host.ID != in.ID {
		return api.Host{}, notYourHost("report for", in.Name)
	}
	now := s.db.now()
	host, told, known := s.db.hosts.Touch(in.ID, now)
	if in.Mark != nil && *in.Mark != told {
		if err := s.marks.Observe(ctx, in.ID, in.Name, *in.Mark); err != nil {
			return api.Host{}, err
		}
	} else {
		s.db.history.ClearDoubt(in.ID)
	}
	// Refuse an unchanged report too, so that the host can show why the registry does not work.
	// Refuse also a report with an older epoch: after stale_epoch the host would release volumes
	// by an outdated state of the registry.
	err := s.db.writable()
	if err != nil {
		return api.Host{}, err
	}
	s.db.hosts.SetCompared(in.ID)
	if known {
		if err := admitReport(host, in.Epoch); err != nil {
			return api.Host{}, err
		}
	}
	if in.Digest == "" {
		if host, in.Digest, err = s.take(ctx, call, in, host, now); err != nil {
			return api.Host{}, err
		}
	} else if !s.db.hosts.HasReport(in.ID, in.Digest) {
		return api.Host{}, api.Errorf(api.CodeConflict, "the registry does not have the report of host %s that the digest stands for; it wants the whole report", in.Name).
			With(api.DetailReportWhole, true)
	}
	if err := s.progress.cache(ctx, in); err != nil {
		return api.Host{}, err
	}
	h, mark := s.hosts.document(host), s.db.history.Now()
	h.Mark, h.ReportDigest, h.ReportEverySeconds = &mark, in.Digest, int(s.db.reportEvery()/time.Second)
	s.db.hosts.SetMark(in.ID, mark)
	return h, nil
}

func (s *Reports) take(ctx context.Context, call Call, in api.HostReport, host hostcache.Row, now time.Time) (hostcache.Row, string, error) {
	digest, err := reportDigest(in)
	if err != nil {
		return host, "", err
	}
	if s.db.hosts.Update(in, digest) {
		return host, digest, nil
	}
	if call.Host != nil {
		if ok, _ := s.limit.Allow(in.ID, now); !ok {
			return host, "", api.Errorf(api.CodeRegistryUnavailable, "the report of host %s was not taken: a host may report something new %d times at once and %d times a second; try again later",
				in.Name, reportsAtOnce, reportsPerSecond).
				With(api.DetailReportLater, true)
		}
	}
	end, err := s.db.hosts.BeginReport(ctx, in.ID)
	if err != nil {
		return host, "", err
	}
	defer end()
	if host, err = s.store(ctx, call, in, digest); err != nil {
		return host, "", err
	}
	s.db.hosts.Touch(in.ID, now)
	s.db.hosts.SetCompared(in.ID) // the host may be new
	s.db.hosts.Update(in, digest)
	return host, digest, nil
}

func admitReport(h hostcache.Row, epoch int64) error {
	if !h.Fenced && (epoch == h.Epoch || epoch == 0 && h.Epoch == 1) {
		return nil
	}
	return staleEpoch(h, epoch)
}

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

func (s *Reports) store(ctx context.Context, call Call, in api.HostReport, digest string) (hostcache.Row, error) {
	call.Key = ""
	return mutateIf(ctx, s.db, call, "host.report", in, admitWritable, func(ctx context.Context, tx *Tx) (hostcache.Row, error) {
		pools := poolTx{tx}
		was, err := tx.hostRow(ctx, in.ID)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return was, err
		}
		if err == nil {
			// The host may have been fenced since the check in memory.
			if err := admitReport(was, in.Epoch); err != nil {
				return was, err
			}
		}
		now, err := s.storeHost(ctx, tx, in)
		if err != nil {
			return now, err
		}
		if err := pools.replace(ctx, in.ID, s.pools.trusted(in.Pools, in.ID, in.Name)); err != nil {
			return now, err
		}
		foreign, err := reportTx{tx}.storeInstances(ctx, in)
		if err != nil {
			return now, err
		}
		tx.OnCommit(func() {
			s.db.hosts.Put(now, digest)
			s.db.hosts.SetForeign(in.ID, foreign)
		})
		return now, reportTx{tx}.audit(ctx, was, now)
	})
}

func (s *Reports) storeHost(ctx context.Context, tx *Tx, in api.HostReport) (hostcache.Row, error) {
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

// nameTaken returns the refusal of a host because another id has its name: another machine, which
// may report right now, or this machine before it was reinstalled.
func (s *Reports) nameTaken(ctx context.Context, tx *Tx, name string) error {
	h, err := scanHostRow(tx.QueryRowContext(ctx, hostQuery+" WHERE name = ?", name))
	if err != nil {
		return fmt.Errorf("look up the host of the name %s: %w", name, err)
	}
	last := h.LastSeen
	if at, ok := s.db.hosts.LastSeen(h.ID); ok {
		last = at
	}
	refused := fmt.Sprintf("the name %s belongs to another host (id %s, last report %s)", name, h.ID, last.UTC().Format(time.RFC3339))
	if !h.Fenced && s.db.isUp(h.ID, last) {
		return api.Errorf(api.CodeConflict, "%s, which reports right now; give one of the two another name (host_name in volferryd.toml)", refused)
	}
	return api.Errorf(api.CodeConflict, "%s; if that is another machine, give one of the two another name (host_name in volferryd.toml); "+
		"if it is this machine, which was installed again, give it back that id, and what it had is its own again: "+
		"without TLS by `%s > /var/lib/volferry/host-id` while volferryd is stopped, with TLS by a certificate from `%s`; "+
		"docs/how-to/reinstall-a-host.md has all of it", refused, shell.Line("echo", h.ID), shell.Line("volferry-registry", "issue-cert", "host", name, "--id", h.ID, "--out", name+"-again"))
}

func (tx reportTx) audit(ctx context.Context, was, now hostcache.Row) error {
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

// Invalidate makes the store write each host's next report, even if unchanged.
func (s *Reports) Invalidate(hostIDs ...string) { s.db.hosts.Invalidate(hostIDs...) }
