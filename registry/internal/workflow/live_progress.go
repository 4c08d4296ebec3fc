// SPDX-License-Identifier: Apache-2.0

package workflow

const (
	slowRounds = 3
	// A round is slow if it leaves more than this fraction of the bytes that the round before left.
	slowParts, slowWhole = 4, 5
	// leastWriteRate is the lowest write limit of a guest, in bytes per second.
	leastWriteRate = 16 << 10
)

// LiveStalledRounds is the number of consecutive slow rounds after which the guests count as
// writing faster than the copy, despite throttling.
const LiveStalledRounds = 10

// progress returns the next round's Left, Slow and Throttled. Once guests are throttled, if
// allowed, each round throttles them further until the pause.
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

// WriteLimit returns the write limit of each of the host's guests in bytes per second, 0 for none.
// It starts at half of the host's copy rate, shared among its guests, and halves with each further
// round.
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

// maxHalvings bounds the halvings of a rate: leastWriteRate is reached long before.
const maxHalvings = 40
