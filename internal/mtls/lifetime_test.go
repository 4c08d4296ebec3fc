// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestACertificateIsToldOfInTime(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		valid, left time.Duration
		status, in  string
	}{
		"new for 30 days":     {30 * Day, 30 * Day, "ok", "30 days left"},
		"its last third":      {30 * Day, 9 * Day, "warn", "9 days left"},
		"long, 31 days":       {3650 * Day, 31 * Day, "ok", "good until 2026-04-01"},
		"long, below 30 days": {3650 * Day, 30*Day - time.Second, "warn", "29 days left"},
		"its last day":        {30 * Day, time.Hour, "warn", "less than a day left"},
		"over":                {30 * Day, -time.Second, "fail", "only"},
		"not yet":             {30 * Day, 31 * Day, "fail", "only"},
	} {
		l := Lifetime{Name: "host", File: "/h.crt", Until: now.Add(tc.left)}
		l.From = l.Until.Add(-tc.valid)
		c := l.Check(now, "renew it")
		if c.Status != tc.status || !strings.Contains(c.Message, tc.in) || (c.Advice == "") != (tc.status == "ok") {
			t.Errorf("%s: %+v, want %s with %q", name, c, tc.status, tc.in)
		}
	}
	if c := (Lifetime{Name: "host", Err: errors.New("gone")}).Check(now, ""); c.Status != "fail" || c.Message != "gone" {
		t.Errorf("one that cannot be read: %+v", c)
	}
}

func TestTheAuthorityThatEndsLastCounts(t *testing.T) {
	if l := LifetimeOf("authority", "/nonexistent"); l.Err == nil {
		t.Errorf("a file that is not there: %+v", l)
	}
	dir := t.TempDir()
	ca, err := CreateCA(dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	l := LifetimeOf("authority", dir+"/"+CACertFile)
	if l.Err != nil || !l.Until.Equal(ca.cert.NotAfter) {
		t.Errorf("%+v, want the end %s", l, ca.cert.NotAfter)
	}
}
