// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/volferry/volferry/internal/api"
)

const (
	// heartbeaters are how many goroutines connect the hosts, each its share of them.
	heartbeaters = 32
	// instancesPerHost are those of an ordinary host.
	instancesPerHost = 10
	// wholeEvery is how often a host that has nothing new to say reports everything all the same.
	wholeEvery = 5 * time.Minute
)

// poolNames are the pools of each host; volumes are in the first one, for the registry
// takes none in a pool that its host has not reported.
var poolNames = []string{"fast", "slow"}

// heart is a host that reports as daemons do: it shows the mark that it was told the last time, and
// sends the digest of what it has said before. It waits for tasks until just before a report is
// due, and reports on the same connection.
type heart struct {
	*conn
	path string
	// whole and brief are the reports up to the mark; brief is without its digest.
	whole, brief []byte
	mark, digest []byte
	body         []byte
	every        time.Duration // how often the registry wants to hear of it
	wholeAt      time.Time     // of the last whole report
	sent         *sent
}

// sent counts the reports and the waits of all hosts.
type sent struct{ whole, brief, waits atomic.Int64 }

// reportOf is what a host says of itself, without a mark.
func reportOf(h *host, instances []api.InstanceReport) []byte {
	r := api.HostReport{ID: h.id, Name: h.name, Version: "bench", BootID: h.id, Epoch: 1, Pools: []api.Pool{}, Instances: instances}
	for _, name := range poolNames {
		r.Pools = append(r.Pools, api.Pool{
			Name: name, Host: h.id, Type: "logical", Path: "/dev/" + name, Active: true,
			CapacityBytes: 1 << 40, FreeBytes: 1 << 39, UpdatedAt: time.Now().UTC(),
		})
	}
	body, err := json.Marshal(r)
	if err != nil {
		panic(err) // it has no value that could fail
	}
	return body
}

var (
	markField   = []byte(`"mark":`)
	everyField  = []byte(`"report_every_seconds":`)
	digestField = []byte(`"report_digest":"`)
)

func (h *heart) beat() error {
	if len(h.digest) == 0 || time.Since(h.wholeAt) >= wholeEvery {
		h.wholeAt = time.Now()
		h.body = append(h.body[:0], h.whole...)
		h.sent.whole.Add(1)
	} else {
		h.body = append(append(append(append(h.body[:0], h.brief...), `,"digest":"`...), h.digest...), '"')
		h.sent.brief.Add(1)
	}
	if len(h.mark) > 0 {
		h.body = append(append(h.body, `,"mark":`...), h.mark...)
	}
	h.body = append(h.body, '}')
	answer, err := h.post(h.path, "", h.body)
	if err != nil {
		return err
	}
	if _, rest, found := bytes.Cut(answer, digestField); found {
		digest, _, _ := bytes.Cut(rest, []byte(`"`))
		h.digest = append(h.digest[:0], digest...)
	}
	_, rest, found := bytes.Cut(answer, everyField)
	seconds, _, _ := bytes.Cut(rest, []byte(","))
	n, err := strconv.Atoi(string(bytes.TrimRight(seconds, "}\n")))
	if !found || err != nil || n <= 0 {
		return fmt.Errorf("the answer to a report does not say when to report again: %s", answer)
	}
	h.every = time.Duration(n) * time.Second
	_, rest, found = bytes.Cut(answer, markField)
	end := bytes.IndexByte(rest, '}')
	if !found || end < 0 {
		return fmt.Errorf("no mark in the answer to a report: %s", answer)
	}
	h.mark = append(h.mark[:0], rest[:end+1]...)
	return nil
}

// everyOf is how often the registry wants to hear of a host, as it has told the last one that was
// introduced: before, it had fewer.
func everyOf(hearts []*heart) (every time.Duration) {
	for _, h := range hearts {
		every = max(every, h.every)
	}
	return every
}
