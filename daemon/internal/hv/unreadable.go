// SPDX-License-Identifier: Apache-2.0

package hv

import (
	"errors"
	"fmt"
	"strings"
)

// Unreadable is the error for an incomplete list of domains: it lacks these Domains, which cannot
// be read now. A caller that searches all domains for the users of an image must treat it like any
// other error: an unread domain may use the image. Other callers use Readable.
type Unreadable struct{ Domains []UnreadableDomain }

// UnreadableDomain is a domain that exists and cannot be read.
type UnreadableDomain struct {
	ID   string
	Name string
	Err  error
}

// Error returns every domain with its reason.
func (u *Unreadable) Error() string {
	each := make([]string, len(u.Domains))
	for i, d := range u.Domains {
		each[i] = fmt.Sprintf("domain %s cannot be read: %v", d.Name, d.Err)
	}
	return strings.Join(each, "; ")
}

// Unwrap returns the reasons.
func (u *Unreadable) Unwrap() []error {
	errs := make([]error, len(u.Domains))
	for i, d := range u.Domains {
		errs[i] = d.Err
	}
	return errs
}

// Readable splits the results of Domains into the readable and the unreadable domains. It returns
// an error if there is no list at all.
func Readable(doms []Domain, err error) ([]Domain, []UnreadableDomain, error) {
	var some *Unreadable
	if errors.As(err, &some) {
		return doms, some.Domains, nil
	}
	return doms, nil, err
}
