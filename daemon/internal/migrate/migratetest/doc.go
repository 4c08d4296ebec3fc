// SPDX-License-Identifier: Apache-2.0

// Package migratetest is a host in memory, where the tests of packages steps and migrate move a
// volume: one instance on the fake hypervisor, and stateful fakes of the other ports. It does not
// know plans or the manager.
package migratetest
