// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"fmt"
	"time"

	"github.com/volferry/volferry/registry/internal/ledger"
)

// MemoryRate is how fast a host has saved and restored RAM, in bytes per second; 0 where that is
// not known.
type MemoryRate struct{ Save, Restore float64 }

const (
	// rateSteps is how many of the newest saves and restores of a host are looked at. The
	// fastest counts: others may have had to wait for each other.
	rateSteps = 5
	// comparableRAM is how many times as much RAM may be estimated by a save or a restore: of less
	// RAM most of the time goes to other things than its bytes.
	comparableRAM = 4
)

// MemoryRate returns how fast a host has lately saved and restored so much RAM, or more.
func (s *Store) MemoryRate(ctx context.Context, host string, bytes int64) (MemoryRate, error) {
	return ledger.View(ctx, s.Reader(), func(q ledger.Querier) (r MemoryRate, err error) {
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

// Standstill is how long a host needs to write so much RAM of its guests and to read it again,
// where it takes usual bytes per second for what was never measured. Measured says that both were.
func (r MemoryRate) Standstill(bytes int64, usual float64) (save, restore time.Duration, measured bool) {
	of := func(rate float64) time.Duration {
		if rate <= 0 {
			rate = usual
		}
		return time.Duration(float64(bytes) / rate * float64(time.Second))
	}
	return of(r.Save), of(r.Restore), r.Save > 0 && r.Restore > 0
}

// UsualMemoryRate is how many bytes per second a disk is taken to write or read, where nothing is
// known of it.
const UsualMemoryRate = 100e6
