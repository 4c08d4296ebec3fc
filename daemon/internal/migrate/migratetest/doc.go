// SPDX-License-Identifier: Apache-2.0

// Package migratetest is a host in memory, on which the tests of package steps and of
// package migrate move a volume: one instance on the fake hypervisor, and fakes with state
// behind the other ports. It knows nothing of plans and of the manager.
package migratetest
