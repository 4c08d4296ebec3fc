// SPDX-License-Identifier: Apache-2.0

package main

import "time"

// options are what can be asked for.
type options struct {
	seconds     time.Duration // of each measurement
	clients     int
	rate        int // changes per second that many clients offer together
	hosts       int // that heartbeat
	attachments int // of the full site
	seed        uint64
	results     string // file of the raw numbers
	only        string // the measurements that are made, "" for all
	bin         string
	etcd        string // program of test/bench/etcd, "" to leave the comparison out
}
