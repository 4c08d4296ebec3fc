// SPDX-License-Identifier: Apache-2.0

// Package instance owns what Volferry says about whole guests rather than
// their disks: today the guards, which keep a domain from being started while
// a start would lose or corrupt data. It knows nothing of volumes, journals or
// the registry, and never talks to libvirt: the hook that reads the guards
// must work while everything else is down.
package instance
