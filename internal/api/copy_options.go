// SPDX-License-Identifier: Apache-2.0

package api

import "cmp"

// CopyOptions say how the bytes of a volume are copied. Each request that leads to a copy
// has them, and every layer hands them on as a whole.
type CopyOptions struct {
	// BandwidthBytesPerSecond caps the copy; 0 is no limit.
	BandwidthBytesPerSecond int64 `json:"bandwidth_bytes_per_second,omitempty"`
	// Verify is VerifyFull or VerifyNone. Empty means the default of the request.
	Verify string `json:"verify,omitempty" enum:"full,none"`
	// Pace says how far the copy gives way to the guest: PaceOff, PaceGentle or PaceFull. Empty
	// is PaceGentle.
	Pace string `json:"pace,omitempty" enum:"off,gentle,full" needs:"-"`
}

// The values of CopyOptions.Pace.
const (
	// PaceOff copies as fast as the storage allows, whatever the guest feels.
	PaceOff = "off"
	// PaceGentle gives way to the guest as long as the copy keeps half of its speed, and the guest
	// loses less by it. It is the default: a copy that takes much longer keeps the guest's newest
	// writes in the overlay alone for as long.
	PaceGentle = "gentle"
	// PaceFull gives way as far as the guest needs it. The copy may become many times slower.
	PaceFull = "full"
)

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
	// Pace is as in CopyOptions; empty changes nothing.
	Pace string `json:"pace,omitempty" enum:"off,gentle,full" needs:"-"`
}

// Check refuses what makes no sense by itself.
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

// After returns what was changed by in after it was changed by before.
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

// CopyOptions returns how the copy of a migration is made. Migration does not embed
// CopyOptions because its JSON document has the fields in another order.
func (m *Migration) CopyOptions() CopyOptions {
	return CopyOptions{BandwidthBytesPerSecond: m.BandwidthBytesPerSecond, Verify: m.Verify, Pace: m.Pace}
}

// SetCopyOptions sets the fields of m that say how its copy is made.
func (m *Migration) SetCopyOptions(o CopyOptions) {
	m.BandwidthBytesPerSecond, m.Verify, m.Pace = o.BandwidthBytesPerSecond, o.Verify, o.Pace
}
