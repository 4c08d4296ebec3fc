// SPDX-License-Identifier: Apache-2.0

package workflow

const (
	// slowRounds is how many rounds in a row may leave hardly less than the one before, until the
	// guests are throttled.
	slowRounds = 3
	// A round is slow that leaves more than this part of what the one before has left.
	slowParts, slowWhole = 4, 5
	// leastWriteRate is the least that a guest may be held back to, in bytes per second.
	leastWriteRate = 16 << 10
)

// LiveStalledRounds is how many rounds in a row may leave hardly less than the one before, until
// the guests are taken to write faster than they are copied, whatever was done about it.
const LiveStalledRounds = 10

// progress is how the copy gets ahead as its next round begins: what is left, how many rounds in a
// row were slow, and how many times what the guests may write was made less, where that is
// allowed: once they are throttled, with each round until the pause.
func (l *Live) progress(mayThrottle bool) (left int64, slow, throttled int) {
	for _, h := range l.Hosts {
		left += h.Dirty
	}
	if l.Round > 0 && left > l.Left/slowWhole*slowParts {
		slow = l.Slow + 1
	}
	throttled = l.Throttled
	if mayThrottle && (throttled > 0 || slow >= slowRounds) {
		throttled++
	}
	return left, slow, throttled
}

// WriteLimit is the most that each of so many guests of a host may write in a second, 0 for no
// limit: at first half of what the host has copied, shared among them, and half as much with
// each further round.
func (l *Live) WriteLimit(h LiveHost, guests int) int64 {
	if l.Throttled == 0 || guests == 0 {
		return 0
	}
	if h.Copied == 0 || h.Took <= 0 {
		return leastWriteRate // it has copied nothing, so its guests have written nothing
	}
	rate := float64(h.Copied) / h.Took.Seconds() / float64(guests)
	for range min(l.Throttled, maxHalvings) {
		rate /= 2
	}
	return max(leastWriteRate, int64(rate))
}

// maxHalvings bounds how often a rate is halved: it is the least there is long before.
const maxHalvings = 40
