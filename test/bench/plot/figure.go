// SPDX-License-Identifier: Apache-2.0

// Package plot draws figures as SVG: texts, bars, lines and dots, placed by their pixels from the
// upper left corner. The benchmarks share it. It must not know what they measure.
package plot

import (
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Figure is a drawing. What is drawn later covers what was drawn before.
type Figure struct{ body strings.Builder }

// Look is how a text is written.
type Look string

// Looks of texts, which begin at their place unless they say otherwise.
const (
	Bold   Look = ` font-weight="bold"`
	Small  Look = ` font-size="11"`
	Middle Look = ` text-anchor="middle"` // the place is its middle
	End    Look = ` text-anchor="end"`    // it ends at the place
)

// Text writes a line whose feet are at y.
func (f *Figure) Text(x, y float64, text string, looks ...Look) {
	fmt.Fprintf(&f.body, `<text x="%s" y="%s"`, pixels(x), pixels(y))
	for _, l := range looks {
		f.body.WriteString(string(l))
	}
	f.body.WriteByte('>')
	_ = xml.EscapeText(&f.body, []byte(text)) // a Builder takes all
	f.body.WriteString("</text>\n")
}

// Bar draws a rectangle whose upper left corner is at x and y.
func (f *Figure) Bar(x, y, width, height float64, color string) {
	fmt.Fprintf(&f.body, "<rect x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\" fill=\"%s\"/>\n", pixels(x), pixels(y), pixels(width), pixels(height), color)
}

// Dot draws one around x and y.
func (f *Figure) Dot(x, y float64, color string) {
	fmt.Fprintf(&f.body, "<circle cx=\"%s\" cy=\"%s\" r=\"3\" fill=\"%s\"/>\n", pixels(x), pixels(y), color)
}

// Line connects points, each of which is an x and a y.
func (f *Figure) Line(points [][2]float64, width float64, color string) {
	var places []string
	for _, p := range points {
		places = append(places, pixels(p[0])+","+pixels(p[1]))
	}
	fmt.Fprintf(&f.body, "<polyline points=\"%s\" fill=\"none\" stroke-width=\"%s\" stroke=\"%s\"/>\n", strings.Join(places, " "), pixels(width), color)
}

// SVG is the figure on white.
func (f *Figure) SVG(width, height float64) string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%s" height="%s" font-family="sans-serif" font-size="13">
<rect width="100%%" height="100%%" fill="white"/>
%s</svg>
`, pixels(width), pixels(height), f.body.String())
}

// pixels writes a number of them, to a tenth.
func pixels(v float64) string { return strconv.FormatFloat(math.Round(10*v)/10, 'f', -1, 64) }
