// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What hosts, guests and images are called, and what they say, comes from outside. A
// terminal obeys control characters, and bidirectional ones show a text as another. So
// every function of this package that writes shows them as Go would write them (\x1b).

// Cell is s with its control characters escaped, for one line.
func Cell(s string) string { return printable(s, "") }

// Text is s with its control characters escaped, but not line breaks and tabs.
func Text(s string) string { return printable(s, "\n\t") }

func printable(s, kept string) string {
	shown := func(r rune) bool { return unicode.IsGraphic(r) || strings.ContainsRune(kept, r) }
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !shown(r) }) {
		return s
	}
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		if shown(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// jsonWriter escapes the control characters that JSON permits in strings and a terminal
// would obey. Outside of strings a document has none.
type jsonWriter struct{ w io.Writer }

func (j jsonWriter) Write(p []byte) (int, error) {
	if bytes.IndexFunc(p, obeyed) < 0 {
		return j.w.Write(p)
	}
	var b bytes.Buffer
	for _, r := range string(p) {
		switch {
		case !obeyed(r):
			b.WriteRune(r)
		case r > 0xFFFF: // of the tags, which JSON writes as two
			b.WriteRune(utf8.RuneError)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	_, err := j.w.Write(b.Bytes())
	return len(p), err
}

func obeyed(r rune) bool { return r != '\n' && !unicode.IsGraphic(r) }
