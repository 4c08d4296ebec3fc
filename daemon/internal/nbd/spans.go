// SPDX-License-Identifier: Apache-2.0

package nbd

import (
	"cmp"
	"errors"
	"slices"
)

type span struct{ from, to int64 }

const maxSpans = 4096

type spans []span

func (all *spans) add(s span) error {
	have := *all
	i, _ := slices.BinarySearchFunc(have, s.from, func(f span, from int64) int { return cmp.Compare(f.from, from) })
	j := i
	if i > 0 {
		switch before := have[i-1]; {
		case before.to > s.from:
			return errAnsweredTwice
		case before.to == s.from:
			s.from, i = before.from, i-1
		}
	}
	if j < len(have) {
		switch after := have[j]; {
		case after.from < s.to:
			return errAnsweredTwice
		case after.from == s.to:
			s.to, j = after.to, j+1
		}
	}
	if *all = slices.Replace(have, i, j, s); len(*all) > maxSpans {
		return errors.New("the server answers a read in too many pieces")
	}
	return nil
}

var errAnsweredTwice = errors.New("the server answers a read twice in the same place")

func (all spans) bytes() (n int64) {
	for _, s := range all {
		n += s.to - s.from
	}
	return n
}
