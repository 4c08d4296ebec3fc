// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"fmt"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
)

// warnBefore is how long before its end a certificate causes a warning. A certificate with a short
// lifetime does so in its last third.
const warnBefore = 30 * Day

// Lifetime is the validity of a certificate.
type Lifetime struct {
	// Name is the name in messages and metrics: host, server or authority.
	Name  string
	File  string
	From  time.Time
	Until time.Time
	Err   error
}

// LifetimeOf reads the lifetime of the certificate in a PEM file. If the file has several, as
// while one authority replaces another, it returns the lifetime that ends last.
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

// Check reports in how many days the certificate ends: warn if it should be renewed, fail if it is
// not valid now. advice says how to renew it.
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

func days(d time.Duration) string {
	if d < Day {
		return "less than a day"
	}
	return humanize.Count(int(d/Day), "day")
}
