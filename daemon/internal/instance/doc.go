// SPDX-License-Identifier: Apache-2.0

// Package instance owns what Volferry does about whole guests rather than one
// disk (DESIGN.md): starting and stopping them, putting them on the shelf and bringing
// them back, saving them with their RAM, and taking over domains that exist. It knows
// nothing of how a migration or an attach is made, nor of SQL.
package instance
