// SPDX-License-Identifier: Apache-2.0

package copy

import "time"

const (
	// tolerated is the mean latency, over the idle one, at which the copy gives
	// way; toleratedSlack, and what the idle latency varies by itself, keep it from
	// fighting over what a disk does anyway.
	tolerated      = 1.5
	toleratedSlack = 300 * time.Microsecond
	// minSampleRequests makes a mean.
	minSampleRequests = 4
)

// latencyWatch holds the mean latency of one kind of a guest's requests against what it
// is while no copy is under way.
type latencyWatch struct {
	before   Latency
	measured bool // before is set

	idle      time.Duration // without the copy, 0 where it is not known
	tolerated time.Duration // 0 where it is not known what is usual

	// Of a quiet time: the mean of each look.
	means []time.Duration
}

// restart begins to count from now on.
func (w *latencyWatch) restart(now Latency, ok bool) {
	w.before, w.measured, w.means = now, ok, nil
}

// mean is the mean latency since the last one that it returned, or since restart. It is
// not known before there were enough requests.
func (w *latencyWatch) mean(now Latency, ok bool) (time.Duration, bool) {
	before := w.before
	// Counters that went back are those of a new process of the guest.
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

// learn takes a look while the copy stands still.
func (w *latencyWatch) learn(now Latency, ok bool) {
	if mean, known := w.mean(now, ok); known {
		w.means = append(w.means, mean)
	}
}

// learned ends a quiet time. Without enough requests nothing is known, and what the
// guest does after a pause is not held against an old figure.
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

// Latency counts a guest's requests of one kind and sums up how long they took.
type Latency struct {
	Requests int64
	Total    time.Duration
}

// GuestLatency has the counters of a guest's disk since the guest's process began.
type GuestLatency struct {
	Reads, Writes, Flushes Latency
}

func (l *GuestLatency) kinds() [3]Latency { return [...]Latency{l.Reads, l.Writes, l.Flushes} }

// strain is the worst of the latencies of all kinds of requests. Known says that there were
// enough requests of one kind; learned is false if the guest does something that it did not
// while the copy stood still.
type strain struct {
	worst          float64 // 1 is what is tolerated
	known, learned bool
	kind           int // of the worst
	mean           time.Duration
	excess         float64 // by how much that is longer, as a part of what it is without the copy
}
