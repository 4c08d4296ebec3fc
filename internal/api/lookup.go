// SPDX-License-Identifier: Apache-2.0

package api

import "strings"

// MinIDPrefix is how many characters of an id name a thing, where no other id begins
// with them. What is shorter would be a name by accident.
const MinIDPrefix = 4

// Lookup returns the first thing with this id or name, or else all whose ids begin
// with ref. key returns the id and the name of a thing, "" for one that it has not.
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
