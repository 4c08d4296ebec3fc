// SPDX-License-Identifier: Apache-2.0

package api

import "cmp"

// CopyOptions configure the copy of a volume.
type CopyOptions struct {
	BandwidthBytesPerSecond int64 `json:"bandwidth_bytes_per_second,omitempty"`
	// Verify is VerifyFull or VerifyNone; empty is the default of the request.
	Verify string `json:"verify,omitempty" enum:"full,none"`
	// Pace is how far the copy slows down for the guest: PaceOff, PaceGentle (the default) or
	// PaceFull.
	Pace string `json:"pace,omitempty" enum:"off,gentle,full"`
}

// The values of CopyOptions.Pace.
const (
	// PaceOff copies as fast as the storage allows.
	PaceOff = "off"
	// PaceGentle keeps at least half of the copy's speed, and slows down only if the guest
	// benefits. Until the copy ends, the guest's newest writes are in the overlay only.
	PaceGentle = "gentle"
	// PaceFull slows down as far as the guest needs, even to a fraction of the speed.
	PaceFull = "full"
)

// The values of CopyOptions.Verify.
const (
	// VerifyFull reads the copied blocks back and compares them.
	VerifyFull = "full"
	VerifyNone = "none"
)

// Check validates the options.
func (o CopyOptions) Check() error {
	if err := checkBandwidth(o.BandwidthBytesPerSecond); err != nil {
		return err
	}
	switch o.Verify {
	case "", VerifyFull, VerifyNone:
	default:
		return invalid("verify is %.20q; it must be full or none", o.Verify)
	}
	return checkPace(o.Pace)
}

func checkPace(pace string) error {
	switch pace {
	case "", PaceOff, PaceGentle, PaceFull:
		return nil
	}
	return invalid("pace is %.20q; it must be off, gentle or full", pace)
}

// AtMost returns the lower of rate, in bytes per second, and the limit of the options.
func (o CopyOptions) AtMost(rate float64) float64 {
	if o.BandwidthBytesPerSecond == 0 {
		return rate
	}
	return min(rate, float64(o.BandwidthBytesPerSecond))
}

// MigrationUpdate changes the options of an open migration.
type MigrationUpdate struct {
	BandwidthBytesPerSecond *int64 `json:"bandwidth_bytes_per_second,omitempty"`
	// Pace is as in CopyOptions; empty means no change.
	Pace string `json:"pace,omitempty" enum:"off,gentle,full"`
}

// Check validates the request.
func (in MigrationUpdate) Check() error {
	if in.BandwidthBytesPerSecond == nil && in.Pace == "" {
		return invalid("there is nothing to change: say bandwidth_bytes_per_second or pace")
	}
	if in.BandwidthBytesPerSecond != nil {
		if err := checkBandwidth(*in.BandwidthBytesPerSecond); err != nil {
			return err
		}
	}
	return checkPace(in.Pace)
}

// After returns an update with the effect of before and then in.
func (in MigrationUpdate) After(before MigrationUpdate) MigrationUpdate {
	if in.BandwidthBytesPerSecond == nil {
		in.BandwidthBytesPerSecond = before.BandwidthBytesPerSecond
	}
	in.Pace = cmp.Or(in.Pace, before.Pace)
	return in
}

// Apply returns o with the changes of in.
func (in MigrationUpdate) Apply(o CopyOptions) CopyOptions {
	if in.BandwidthBytesPerSecond != nil {
		o.BandwidthBytesPerSecond = *in.BandwidthBytesPerSecond
	}
	o.Pace = cmp.Or(in.Pace, o.Pace)
	return o
}

func checkBandwidth(b int64) error {
	if b < 0 {
		return invalid("bandwidth_bytes_per_second is %d; it must not be negative (0 is no limit)", b)
	}
	return nil
}

// CopyOptions returns the copy options of m.
func (m *Migration) CopyOptions() CopyOptions {
	return CopyOptions{BandwidthBytesPerSecond: m.BandwidthBytesPerSecond, Verify: m.Verify, Pace: m.Pace}
}

// SetCopyOptions sets the copy options of m.
func (m *Migration) SetCopyOptions(o CopyOptions) {
	m.BandwidthBytesPerSecond, m.Verify, m.Pace = o.BandwidthBytesPerSecond, o.Verify, o.Pace
}
