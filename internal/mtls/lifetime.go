// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"fmt"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// warnBefore is how long before its end a certificate is told of, or the last third of
// its time, if that is less: one for 30 days is not late on its first day.
const warnBefore = 30 * Day

// Lifetime is from when to when a certificate is good.
type Lifetime struct {
	// Name is the certificate's for people and for labels of metrics: host, server or
	// authority.
	Name  string
	File  string
	From  time.Time
	Until time.Time
	// Err is why nothing is known of it.
	Err error
}

// LifetimeOf reads a PEM file. Of several certificates in it, as of authorities while
// one replaces another, the one that ends last counts.
func LifetimeOf(name, file string) Lifetime {
	certs, err := readCertificates(file)
	l := Lifetime{Name: name, File: file, Err: err}
	for _, c := range certs {
		if c.NotAfter.After(l.Until) {
			l.From, l.Until = c.NotBefore, c.NotAfter
		}
	}
	return l
}

// Check says until when the certificate is good, and how many days that is from now:
// warn when it is time to renew it, fail when it is not good. Advice says how.
func (l Lifetime) Check(now time.Time, advice string) api.Check {
	c := api.Check{Name: l.Name + " certificate", Status: "fail", Advice: advice}
	left := l.Until.Sub(now)
	switch {
	case l.Err != nil:
		c.Message = l.Err.Error()
		return c
	case left <= 0 || now.Before(l.From):
		c.Message = fmt.Sprintf("%s is good from %s to %s only", l.File, l.From.UTC().Format(time.RFC3339), l.Until.UTC().Format(time.RFC3339))
		return c
	}
	c.Message = fmt.Sprintf("good until %s, %s left", l.Until.UTC().Format(time.DateOnly), days(left))
	if left < min(warnBefore, l.Until.Sub(l.From)/3) {
		c.Status = "warn"
		return c
	}
	c.Status, c.Advice = "ok", ""
	return c
}

// days are whole days in words.
func days(d time.Duration) string {
	if d < Day {
		return "less than a day"
	}
	return api.Count(int(d/Day), "day")
}
