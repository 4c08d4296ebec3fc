// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
)

// Rate formats bytes per second: 100MiB/s.
func Rate(bytesPerSecond int64) string { return humanize.Bytes(bytesPerSecond) + "/s" }

// Duration formats d with at most two units: 450ms, 8.2s, 3m20s, 2h5m, 4d3h.
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	case d < 10*time.Second:
		return strings.TrimSuffix(strconv.FormatFloat(d.Seconds(), 'f', 1, 64), ".0") + "s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return twoUnits(int(d/time.Minute), "m", int(d%time.Minute/time.Second), "s")
	case d < 24*time.Hour:
		return twoUnits(int(d/time.Hour), "h", int(d%time.Hour/time.Minute), "m")
	}
	return twoUnits(int(d/(24*time.Hour)), "d", int(d%(24*time.Hour)/time.Hour), "h")
}

func twoUnits(big int, bigUnit string, small int, smallUnit string) string {
	if small == 0 {
		return fmt.Sprintf("%d%s", big, bigUnit)
	}
	return fmt.Sprintf("%d%s%d%s", big, bigUnit, small, smallUnit)
}

// Ago formats the time from t to now, for a column of a table; "-" for the zero time.
func Ago(t, now time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return "-"
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd ago", int(d.Hours()/24))
	}
}

// Time formats t as RFC 3339 in UTC; "-" for the zero time.
func Time(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// YesNo returns yes or no.
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// OrDash returns s, or "-" if s is empty.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Line writes a line for the user. It ignores errors, which could not be reported.
func Line(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintln(w, Text(fmt.Sprintf(format, args...)))
}

// Seconds is Duration for a number of seconds.
func Seconds(s float64) string { return Duration(time.Duration(s * float64(time.Second))) }

// Stall formats the length of a guest's pause in milliseconds; nil is "not at all".
func Stall(ms *float64) string {
	if ms == nil {
		return "not at all"
	}
	return Duration(time.Duration(*ms * float64(time.Millisecond)).Round(time.Millisecond))
}

// Location formats a location for people: pool/name, or its path.
func Location(l api.Location) string {
	switch {
	case l.Pool != "" && l.Name != "":
		return l.Pool + "/" + l.Name
	case l.Path == "":
		return OrDash(l.Pool)
	}
	return l.Path
}

// VolumeName returns the name of a migration's volume, or its id.
func VolumeName(m *api.Migration) string { return cmp.Or(m.VolumeName, m.VolumeID) }

// OnShared returns a suffix for an overlay on shared storage, which survives its host.
func OnShared(m *api.Migration) string {
	if m.OverlayShared {
		return ", on shared storage"
	}
	return ""
}
