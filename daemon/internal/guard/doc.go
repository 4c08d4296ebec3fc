// SPDX-License-Identifier: Apache-2.0

// Package guard keeps domains from being started, also while volferryd is down: with a file per
// domain, the libvirt hook that reads the file, and a start token that lets one start through. It
// does not know why a domain is guarded: the caller of Set gives the reason.
package guard
