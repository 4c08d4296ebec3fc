// SPDX-License-Identifier: Apache-2.0

// Package instance owns what Volferry does about whole guests rather than one
// disk: taking over domains that exist, and the guards, which keep a domain
// from being started while a start would lose or corrupt data. It knows nothing
// of the migration, the journal or SQL. The guards need no libvirt either: the
// hook that reads them works while everything else is down.
package instance
