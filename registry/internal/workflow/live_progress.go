// SPDX-License-Identifier: Apache-2.0

package workflow

const (
	slowRounds = 3
	// A round is slow if it leaves more than 4/5 of the bytes that the round before left.
	slowParts, slowWhole = 4, 5
	// leastWriteRate is the lowest limit for a guest's writes, in bytes per second.
	leastWriteRate = 16 << 10
)

// LiveStalledRounds is the number of consecutive slow rounds after which the guests, even if
// throttled, count as writing faster than the copy.
const LiveStalledRounds = 10

// progress returns Left, Slow and Throttled for the next round. If mayThrottle is true, the
// guests' writes are throttled after slowRounds slow rounds, and further in each round until the
// pause.
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

// WriteLimit returns the limit for the writes of each of the host's guests, in bytes per second, 0
// for none. The first limit is half of the host's copy rate, shared among its guests. Each further
// throttling halves the limit.
func (l *Live) WriteLimit(h LiveHost, guests int) int64 {
	if l.Throttled == 0 || guests == 0 {
		return 0
	}
	if h.Copied == 0 || h.Took <= 0 {
		return leastWriteRate // the host copied nothing, because its guests wrote nothing
	}
	rate := float64(h.Copied) / h.Took.Seconds() / float64(guests)
	for range min(l.Throttled, maxHalvings) {
		rate /= 2
	}
	return max(leastWriteRate, int64(rate))
}

// maxHalvings bounds the halvings of a rate. leastWriteRate is reached long before.
const maxHalvings = 40
