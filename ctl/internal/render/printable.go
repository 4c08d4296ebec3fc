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

// Names and messages of hosts, guests and images may have characters that control the terminal or
// change the apparent text. So this package escapes them as Go does (\x1b).

// Cell returns s as one line, with its control characters escaped.
func Cell(s string) string { return printable(s, "") }

// Text returns s with its control characters escaped, except line breaks and tabs.
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

// jsonWriter escapes the control characters that JSON permits in strings but a terminal obeys.
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
		case r > 0xFFFF: // a tag character; JSON writes it as two code units
			b.WriteRune(utf8.RuneError)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	_, err := j.w.Write(b.Bytes())
	return len(p), err
}

func obeyed(r rune) bool { return r != '\n' && !unicode.IsGraphic(r) }
