// SPDX-License-Identifier: Apache-2.0

package hv

import (
	"errors"
	"fmt"
	"strings"
)

// Unreadable is the error of a list of domains in which some are missing because their
// state is unknown now. A caller that asks whether any domain uses an image treats it as
// every other error: it may be one of these. A caller that can do without them takes the
// list apart with Readable.
type Unreadable struct{ Domains []UnreadableDomain }

// UnreadableDomain is a domain that exists and cannot be read.
type UnreadableDomain struct {
	ID   string
	Name string
	Err  error
}

// Error names every domain, with its reason.
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

// Readable takes apart what Domains returned: the domains that could be read, and those
// that could not. It returns an error if there is no list at all.
func Readable(doms []Domain, err error) ([]Domain, []UnreadableDomain, error) {
	var some *Unreadable
	if errors.As(err, &some) {
		return doms, some.Domains, nil
	}
	return doms, nil, err
}
