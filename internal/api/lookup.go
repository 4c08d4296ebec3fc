// SPDX-License-Identifier: Apache-2.0

package api

import "strings"

// MinIDPrefix is the shortest beginning of an id that is taken for the id. A shorter text
// could be its beginning by accident.
const MinIDPrefix = 4

// Lookup returns the first thing whose id or name is ref. If there is none it returns all
// things whose id begins with ref. key returns the id and the name of a thing, "" if it
// does not have one.
func Lookup[T any](things []T, ref string, key func(*T) (id, name string)) []T {
	var begin []T
	for i := range things {
		id, name := key(&things[i])
		switch {
		case ref == id, ref == name && name != "":
			return things[i : i+1]
		case len(ref) >= MinIDPrefix && strings.HasPrefix(id, ref):
			begin = append(begin, things[i])
		}
	}
	return begin
}
