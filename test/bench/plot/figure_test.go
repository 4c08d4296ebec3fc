// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestAFigureIsXMLWhateverItsTextsAre(t *testing.T) {
	var f Figure
	f.Text(10, 20.04, `a < b & "c"`, Bold, End)
	f.Bar(1, 2, 3, 4, "#4a90d9")
	f.Line([][2]float64{{0, 1}, {2.25, 3}}, 1.5, "black")
	f.Dot(5, 6, "black")
	drawn := f.SVG(100, 50)
	var texts []string
	for d := xml.NewDecoder(strings.NewReader(drawn)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, drawn)
		}
		if text, ok := token.(xml.CharData); ok && strings.TrimSpace(string(text)) != "" {
			texts = append(texts, string(text))
		}
	}
	if len(texts) != 1 || texts[0] != `a < b & "c"` {
		t.Errorf("the texts are %q", texts)
	}
	for _, want := range []string{`<text x="10" y="20" font-weight="bold" text-anchor="end">`, `points="0,1 2.3,3"`, `width="100" height="50"`} {
		if !strings.Contains(drawn, want) {
			t.Errorf("the figure has no %s:\n%s", want, drawn)
		}
	}
}
