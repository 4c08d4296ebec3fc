// SPDX-License-Identifier: Apache-2.0

package api

import "time"

// Event is an entry of the audit trail, or of the stream of an op. Seq only grows; a reader
// continues after the last Seq that it has seen.
type Event struct {
	Seq       int64          `json:"seq"`
	At        time.Time      `json:"at"`
	Who       string         `json:"who,omitempty"`
	Host      string         `json:"host,omitempty"`
	What      string         `json:"what"`
	Object    string         `json:"object,omitempty"`
	From      string         `json:"from,omitempty"`
	To        string         `json:"to,omitempty"`
	OpID      string         `json:"op_id,omitempty"`
	Token     *Token         `json:"token,omitempty"`
	Result    string         `json:"result,omitempty"`
	Migration *Migration     `json:"migration,omitempty"`
	Drain     *Drain         `json:"drain,omitempty"`
	Details   map[string]any `json:"details,omitempty"`
}
