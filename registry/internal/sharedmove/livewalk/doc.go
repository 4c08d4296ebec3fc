// SPDX-License-Identifier: Apache-2.0

// Package livewalk has only tests: they drive a registry and its hosts, call by call and block by
// block, through moves while all guests write.
package livewalk
