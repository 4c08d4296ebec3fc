// SPDX-License-Identifier: Apache-2.0

// Package guard keeps domains from being started: it has a file per domain, the libvirt
// hook that reads it, and the start token that lets one start through. It works while
// volferryd is down. It must not know why a domain is guarded: who sets a guard gives the
// reason.
package guard
