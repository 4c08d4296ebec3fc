// SPDX-License-Identifier: Apache-2.0

package api

// CopyOptions are how the bytes of a volume are copied: a part of each request that ends
// in a copy, which is handed on whole to the one who copies.
type CopyOptions struct {
	// BandwidthBytesPerSecond caps the copy; 0 is no limit.
	BandwidthBytesPerSecond int64 `json:"bandwidth_bytes_per_second,omitempty"`
	// Verify is VerifyFull or VerifyNone; empty leaves it to who copies.
	Verify string `json:"verify,omitempty" enum:"full,none"`
}

// The words of CopyOptions.Verify.
const (
	// VerifyFull reads back what was copied.
	VerifyFull = "full"
	VerifyNone = "none"
)

// Check refuses what makes no sense by itself.
func (o CopyOptions) Check() error {
	if err := checkBandwidth(o.BandwidthBytesPerSecond); err != nil {
		return err
	}
	switch o.Verify {
	case "", VerifyFull, VerifyNone:
		return nil
	}
	return invalid("verify is %.20q; it must be full or none", o.Verify)
}

// AtMost is how fast, in bytes per second, a copy is that could be as fast as rate.
func (o CopyOptions) AtMost(rate float64) float64 {
	if o.BandwidthBytesPerSecond == 0 {
		return rate
	}
	return min(rate, float64(o.BandwidthBytesPerSecond))
}

// MigrationUpdate changes a migration while it runs.
type MigrationUpdate struct {
	BandwidthBytesPerSecond *int64 `json:"bandwidth_bytes_per_second,omitempty"`
}

// Check refuses what makes no sense by itself.
func (in MigrationUpdate) Check() error {
	if in.BandwidthBytesPerSecond == nil {
		return invalid("there is nothing to change: say bandwidth_bytes_per_second")
	}
	return checkBandwidth(*in.BandwidthBytesPerSecond)
}

// Apply returns the options of a copy that was begun with o, as they are from now on.
func (in MigrationUpdate) Apply(o CopyOptions) CopyOptions {
	if in.BandwidthBytesPerSecond != nil {
		o.BandwidthBytesPerSecond = *in.BandwidthBytesPerSecond
	}
	return o
}

func checkBandwidth(b int64) error {
	if b < 0 {
		return invalid("bandwidth_bytes_per_second is %d; it must not be negative (0 is no limit)", b)
	}
	return nil
}

// CopyOptions returns how the copy of a migration is made. Its document has them in
// another order than they have, so they are not embedded.
func (m *Migration) CopyOptions() CopyOptions {
	return CopyOptions{BandwidthBytesPerSecond: m.BandwidthBytesPerSecond, Verify: m.Verify}
}

// SetCopyOptions has a migration show how its copy is made.
func (m *Migration) SetCopyOptions(o CopyOptions) {
	m.BandwidthBytesPerSecond, m.Verify = o.BandwidthBytesPerSecond, o.Verify
}
