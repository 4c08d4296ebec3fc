// SPDX-License-Identifier: Apache-2.0

package api

// CopyOptions say how the bytes of a volume are copied. Each request that leads to a copy
// has them, and every layer hands them on as a whole.
type CopyOptions struct {
	// BandwidthBytesPerSecond caps the copy; 0 is no limit.
	BandwidthBytesPerSecond int64 `json:"bandwidth_bytes_per_second,omitempty"`
	// Verify is VerifyFull or VerifyNone. Empty means the default of the request.
	Verify string `json:"verify,omitempty" enum:"full,none"`
}

// The values of CopyOptions.Verify.
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

// AtMost returns rate, in bytes per second, or the cap of the options if that is lower.
func (o CopyOptions) AtMost(rate float64) float64 {
	if o.BandwidthBytesPerSecond == 0 {
		return rate
	}
	return min(rate, float64(o.BandwidthBytesPerSecond))
}

// MigrationUpdate changes a migration that is under way.
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

// Apply returns o with the changes of in.
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

// CopyOptions returns how the copy of a migration is made. Migration does not embed
// CopyOptions because its JSON document has the fields in another order.
func (m *Migration) CopyOptions() CopyOptions {
	return CopyOptions{BandwidthBytesPerSecond: m.BandwidthBytesPerSecond, Verify: m.Verify}
}

// SetCopyOptions sets the fields of m that say how its copy is made.
func (m *Migration) SetCopyOptions(o CopyOptions) {
	m.BandwidthBytesPerSecond, m.Verify = o.BandwidthBytesPerSecond, o.Verify
}
