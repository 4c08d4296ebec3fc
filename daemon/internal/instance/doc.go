// SPDX-License-Identifier: Apache-2.0

// Package instance owns what Volferry does about whole guests rather than one
// disk (DESIGN.md): starting and stopping them, putting them on the shelf and bringing
// them back, saving them with their RAM, taking over domains that exist, and the
// guards, which keep a domain from being started while a start would lose or corrupt
// data. It knows nothing of how a migration or an attach is made, nor of SQL. The
// guards need no libvirt either: the hook that reads them works while everything else
// is down.
package instance
