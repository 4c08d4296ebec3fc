// SPDX-License-Identifier: Apache-2.0

// Package guard prevents starts of domains, also while volferryd does not run. It has a file per
// guarded domain, the libvirt hook that reads the file, and a start token that permits one start.
// It does not know why a domain is guarded: the caller of Set gives the reason.
package guard
