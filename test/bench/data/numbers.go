// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strconv"
	"strings"
)

// numbers are the value of a flag that takes several.
type numbers []uint64

func (n *numbers) String() string {
	var words []string
	for _, v := range *n {
		words = append(words, strconv.FormatUint(v, 10))
	}
	return strings.Join(words, ",")
}

// Set reads them from a comma-separated list.
func (n *numbers) Set(text string) error {
	*n = nil
	for word := range strings.SplitSeq(text, ",") {
		v, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			return err
		}
		*n = append(*n, v)
	}
	return nil
}
