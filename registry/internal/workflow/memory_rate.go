// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"fmt"
	"time"

	"github.com/volferry/volferry/registry/internal/ledger"
)

// MemoryRate is the rate of a host's saves and restores of RAM, in bytes per second; 0 if unknown.
type MemoryRate struct{ Save, Restore float64 }

const (
	// rateSteps is how many of a host's newest saves and restores are considered. The fastest
	// counts: the others may have waited for each other.
	rateSteps = 5
	// comparableRAM bounds the extrapolation: a measurement counts for up to this many times the
	// measured RAM. With less RAM, most of the measured time is not spent on bytes.
	comparableRAM = 4
)

// Memory returns a host's recent rates for RAM of this size.
func (s *Rates) Memory(ctx context.Context, host string, bytes int64) (MemoryRate, error) {
	return ledger.View(ctx, s.db.Reader(), func(q ledger.Querier) (r MemoryRate, err error) {
		for reached, rate := range map[string]*float64{PauseSaved: &r.Save, PauseReady: &r.Restore} {
			if err := q.QueryRowContext(ctx, memoryRateQuery, host, reached, bytes/comparableRAM, rateSteps).Scan(rate); err != nil {
				return r, fmt.Errorf("read how fast host %s saves RAM: %w", host, err)
			}
		}
		return r, nil
	})
}

const memoryRateQuery = `SELECT COALESCE(MAX(bytes * 1000.0 / took_ms), 0.0) FROM (
	SELECT bytes, took_ms FROM pause_steps WHERE host = ? AND reached = ? AND bytes >= ? AND bytes > 0 AND took_ms > 0 ORDER BY at_us DESC LIMIT ?)`

// Standstill returns how long the host needs to save, and to restore, RAM of this size. For an
// unknown rate it uses the given usual rate, in bytes per second; measured is then false.
func (r MemoryRate) Standstill(bytes int64, usual float64) (save, restore time.Duration, measured bool) {
	of := func(rate float64) time.Duration {
		if rate <= 0 {
			rate = usual
		}
		return time.Duration(float64(bytes) / rate * float64(time.Second))
	}
	return of(r.Save), of(r.Restore), r.Save > 0 && r.Restore > 0
}

// UsualMemoryRate is the assumed rate of an unknown disk, in bytes per second.
const UsualMemoryRate = 100e6
