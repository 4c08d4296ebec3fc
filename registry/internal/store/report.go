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
	"github.com/volferry/volferry/registry/internal/validate"
)

// Report takes what a daemon says of its host, and answers with the host and the
// registry's mark. A host that is new gets epoch 1. One that was fenced, or comes
// with another epoch than the registry's, is answered with stale_epoch and
// changes nothing; that it was seen is noted. Epoch 0 is a host that has lost its
// memory, which is the same host as long as it was never fenced.
//
// Pools that are nil are not known to the daemon now: what it said last stands;
// so with migrations. Reports carry no op id: only the last one counts.
//
// A report that is a digest is the one that was answered with it; if that is not the
// last that the database has of the host, it is a conflict with DetailReportWhole.
func (s *Store) Report(ctx context.Context, call Call, in api.HostReport) (api.Host, error) {
	if err := validate.Report(in); err != nil {
		return api.Host{}, err
	}
	if call.Host != nil && call.Host.ID != in.ID {
		return api.Host{}, notYourHost("report for", in.Name)
	}
	now := s.now()
	host, told, known := s.hosts.touch(in.ID, now)
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
	s.hosts.setCompared(in.ID)
	if known {
		if err := host.admitReport(in.Epoch); err != nil {
			return api.Host{}, err
		}
	}
	if in.Digest == "" {
		if host, in.Digest, err = s.takeReport(ctx, call, in, host, now); err != nil {
			return api.Host{}, err
		}
	} else if !s.hosts.hasReport(in.ID, in.Digest) {
		return api.Host{}, api.Errorf(api.CodeConflict, "the registry does not have the report of host %s that the digest stands for; it wants the whole report", in.Name).
			With(api.DetailReportWhole, true)
	}
	if err := s.cacheProgress(ctx, in); err != nil {
		return api.Host{}, err
	}
	h, mark := s.hostDocument(host), s.history.Now()
	h.Mark, h.ReportDigest = &mark, in.Digest
	s.hosts.setMark(in.ID, mark)
	return h, nil
}

// takeReport takes what a whole report says of a host, and returns the host and the
// digest of the report.
func (s *Store) takeReport(ctx context.Context, call Call, in api.HostReport, host hostRow, now time.Time) (hostRow, string, error) {
	digest, err := reportDigest(in)
	if err != nil {
		return host, "", err
	}
	if s.hosts.update(in, digest) {
		return host, digest, nil
	}
	if call.Host != nil {
		if ok, _ := s.reportLimit.Allow(in.ID, now); !ok {
			return host, "", api.Errorf(api.CodeRegistryUnavailable, "the report of host %s was not taken: a host may report something new %d times at once and %d times a second; try again later",
				in.Name, reportsAtOnce, reportsPerSecond)
		}
	}
	end, err := s.hosts.beginReport(ctx, in.ID)
	if err != nil {
		return host, "", err
	}
	defer end()
	if host, err = s.storeReport(ctx, call, in, digest); err != nil {
		return host, "", err
	}
	s.hosts.touch(in.ID, now)
	s.hosts.setCompared(in.ID) // it may be new
	s.hosts.update(in, digest)
	return host, digest, nil
}

// admitReport is the check of the token of reports.
func (h hostRow) admitReport(epoch int64) error {
	if !h.fenced && (epoch == h.epoch || epoch == 0 && h.epoch == 1) {
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
func (s *Store) storeReport(ctx context.Context, call Call, in api.HostReport, digest string) (hostRow, error) {
	call.Key = ""
	return mutateIf(ctx, s, call, "host.report", in, admitWritable, func(ctx context.Context, tx *Tx) (hostRow, error) {
		was, err := tx.hostRow(ctx, in.ID)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return was, err
		}
		if err == nil {
			// It may have been fenced since the look in memory.
			if err := was.admitReport(in.Epoch); err != nil {
				return was, err
			}
		}
		now, err := tx.storeHost(ctx, in)
		if err != nil {
			return now, err
		}
		if err := tx.replacePools(ctx, in.ID, s.trustedPools(in.Pools, in.ID, in.Name)); err != nil {
			return now, err
		}
		strays, err := tx.storeInstances(ctx, in)
		if err != nil {
			return now, err
		}
		tx.OnCommit(func() {
			s.hosts.put(now, digest)
			s.hosts.setForeign(in.ID, strays)
		})
		return now, tx.auditReport(ctx, was, now)
	})
}

// storeHost makes or changes the row of a host and returns it.
func (tx *Tx) storeHost(ctx context.Context, in api.HostReport) (hostRow, error) {
	tx.cache.hosts.invalidate()
	_, err := tx.ExecContext(ctx, `INSERT INTO hosts (id, name, version, boot_id, epoch, last_seen_us, created_us)
		VALUES (?1, ?2, ?3, ?4, 1, ?5, ?5)
		ON CONFLICT (id) DO UPDATE SET name = ?2, version = ?3, boot_id = ?4, last_seen_us = ?5`,
		in.ID, in.Name, in.Version, in.BootID, tx.At.UnixMicro())
	if sqlitedb.Violates(err, "hosts.name") {
		return hostRow{}, api.Errorf(api.CodeConflict, "the name %s belongs to another host; give one of them another name", in.Name)
	}
	if err != nil {
		return hostRow{}, fmt.Errorf("store host: %w", err)
	}
	return tx.hostRow(ctx, in.ID)
}

// auditReport tells of what is news in a report: that a host is new, has another
// name, or was booted.
func (tx *Tx) auditReport(ctx context.Context, was, now hostRow) error {
	var what string
	switch {
	case was.id == "":
		what = "host.register"
	case was.name != now.name:
		what = "host.rename"
	case was.bootID != now.bootID:
		what = "host.boot"
	default:
		return nil
	}
	return tx.Audit(ctx, api.Event{
		What: what, Host: now.name, Object: "host/" + now.id, From: was.name, To: now.name, Token: &api.Token{Epoch: now.epoch},
		Details: map[string]any{"boot_id": now.bootID, "version": now.version},
	})
}
