// SPDX-License-Identifier: Apache-2.0

// Package hosttest is the base of the managers' tests: a host in memory with guards, images,
// connectors and the fake hypervisor, the common part of a registry, a daemon that can be killed
// and restarted, and trials with a happening at every call. It does not know plans, or the rules
// of a manager's registry.
package hosttest
