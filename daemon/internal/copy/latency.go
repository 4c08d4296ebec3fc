// SPDX-License-Identifier: Apache-2.0

package copy

import "time"

const (
	// The copy slows down if the mean latency exceeds tolerated times the idle latency.
	// toleratedSlack, and the spread of the idle latency, avoid a reaction to a disk's noise.
	tolerated         = 1.5
	toleratedSlack    = 300 * time.Microsecond
	minSampleRequests = 4
)

// latencyWatch compares the latency of one kind of requests with their latency while the copy is
// paused.
type latencyWatch struct {
	before   Latency
	measured bool // before is set

	idle      time.Duration // without the copy, 0 if unknown
	tolerated time.Duration // 0 if the usual latency is unknown

	// means has the mean latency of each look while the copy is paused.
	means []time.Duration
}

func (w *latencyWatch) restart(now Latency, ok bool) {
	w.before, w.measured, w.means = now, ok, nil
}

// mean returns the mean latency since its last result or since restart. It returns false if the
// latency is unknown, as after too few requests.
func (w *latencyWatch) mean(now Latency, ok bool) (time.Duration, bool) {
	before := w.before
	// Lower counters belong to a new process of the guest.
	if !ok || !w.measured || now.Requests < before.Requests || now.Total < before.Total {
		w.before, w.measured = now, ok
		return 0, false
	}
	if now.Requests-before.Requests < minSampleRequests {
		return 0, false
	}
	w.before = now
	return (now.Total - before.Total) / time.Duration(now.Requests-before.Requests), true
}

func (w *latencyWatch) learn(now Latency, ok bool) {
	if mean, known := w.mean(now, ok); known {
		w.means = append(w.means, mean)
	}
}

// learned computes the idle latency at the end of a pause of the copy. With too few requests it is
// unknown.
func (w *latencyWatch) learned() {
	w.idle, w.tolerated = 0, 0
	if len(w.means) == 0 {
		return
	}
	least, most, sum := w.means[0], w.means[0], time.Duration(0)
	for _, mean := range w.means {
		least, most, sum = min(least, mean), max(most, mean), sum+mean
	}
	w.idle = max(1, sum/time.Duration(len(w.means)))
	w.tolerated = max(time.Duration(tolerated*float64(w.idle)), w.idle+max(toleratedSlack, most-least))
}

// Latency counts a guest's requests of one kind and sums their durations.
type Latency struct {
	Requests int64
	Total    time.Duration
}

// GuestLatency has the counters of a guest's disk since its process started.
type GuestLatency struct {
	Reads, Writes, Flushes Latency
}

func (l *GuestLatency) kinds() [3]Latency { return [...]Latency{l.Reads, l.Writes, l.Flushes} }

// strain is the guest's highest latency of all kinds of requests, relative to the tolerated one.
// known: some kind had enough requests. learned: the latency without the copy is known for every
// kind that the guest requests now.
type strain struct {
	worst          float64 // 1 is the tolerated latency
	known, learned bool
	kind           int
	mean           time.Duration
	excess         float64 // relative excess over the latency without the copy
}
