// SPDX-License-Identifier: Apache-2.0

package api

import "strings"

// MinIDPrefix is the shortest beginning of an id that is taken for the id. A shorter text
// could be its beginning by accident.
const MinIDPrefix = 4

// someID has the form of every id, with a 0 for each digit.
const someID = "00000000-0000-0000-0000-000000000000"

// MayBeginID reports whether an id may begin with text, and text is long enough to be taken for
// that id.
func MayBeginID(text string) bool {
	digits := strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' || 'a' <= r && r <= 'f' {
			return '0'
		}
		return r
	}, text)
	return len(text) >= MinIDPrefix && strings.HasPrefix(someID, digits)
}

// Lookup returns the thing whose id is ref. If there is none it returns all things whose name is
// ref or whose id begins with ref: a name never hides the id of another thing. key returns the id
// and the name of a thing, "" if it does not have one.
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
