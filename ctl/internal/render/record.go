// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"io"
	"strings"
)

// Record is one object, written as lines of "key: value".
type Record struct {
	fields []field
}

type field struct {
	key    string
	values []string
}

// Add appends a field, with one line for each value. An empty value, or none, becomes "-".
func (r *Record) Add(key string, values ...string) {
	if len(values) == 0 {
		values = []string{"-"}
	}
	if len(values) == 1 {
		values = []string{OrDash(values[0])}
	}
	r.fields = append(r.fields, field{key: key, values: values})
}

// AddIf appends a field unless its value is empty.
func (r *Record) AddIf(key, value string) {
	if value != "" {
		r.Add(key, value)
	}
}

// Write writes the record with its values in one column.
func (r *Record) Write(w io.Writer) error {
	longest := 0
	for _, f := range r.fields {
		longest = max(longest, len(f.key))
	}
	var b strings.Builder
	for _, f := range r.fields {
		key := f.key + ":"
		for _, v := range f.values {
			fmt.Fprintf(&b, "%-*s  %s\n", longest+1, key, Cell(v))
			key = ""
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
