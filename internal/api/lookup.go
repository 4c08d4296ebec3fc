// SPDX-License-Identifier: Apache-2.0

package api

import "strings"

// MinIDPrefix is the shortest prefix of an id that cannot match by accident.
const MinIDPrefix = 4

const someID = "00000000-0000-0000-0000-000000000000"

// MayBeginID reports whether text can be a prefix of an id of at least MinIDPrefix characters.
func MayBeginID(text string) bool {
	digits := strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' || 'a' <= r && r <= 'f' {
			return '0'
		}
		return r
	}, text)
	return len(text) >= MinIDPrefix && strings.HasPrefix(someID, digits)
}

// Lookup returns the thing with the id ref. If there is none, it returns all things with the name
// ref or with ids that begin with ref: a name never hides the id of another thing. key returns a
// thing's id and name, or "".
func Lookup[T any](things []T, ref string, key func(*T) (id, name string)) []T {
	var found []T
	for i := range things {
		id, name := key(&things[i])
		switch {
		case ref == id && id != "":
			return things[i : i+1]
		case ref == name && name != "", len(ref) >= MinIDPrefix && strings.HasPrefix(id, ref):
			found = append(found, things[i])
		}
	}
	return found
}
