// SPDX-License-Identifier: Apache-2.0

// Package hosttest is what the tests of a daemon's managers run on: a host in memory with
// guards, images and the fake hypervisor, the common part of a registry, a daemon that can
// be killed and started again, and trials in which something happens at every call. It
// knows nothing of plans, and of the rules that one manager's registry has.
package hosttest
