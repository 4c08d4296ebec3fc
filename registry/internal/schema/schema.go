// SPDX-License-Identifier: Apache-2.0

// Package schema has the tables of the registry's database: one SQL file per version. 1.sql makes
// a new database; each further file upgrades the previous version.
package schema

import (
	"embed"
	"fmt"
)

//go:embed *.sql
var files embed.FS

// Versions returns the statements of every version, oldest first.
func Versions() []string {
	var versions []string
	for n := 1; ; n++ {
		statements, err := files.ReadFile(fmt.Sprintf("%d.sql", n))
		if err != nil {
			return versions // this version does not exist yet
		}
		versions = append(versions, string(statements))
	}
}
