// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/internal/api"
)

// evil is a hostile name: it clears the screen by both beginnings of a sequence, rings the bell,
// reverses the text, and begins a line.
const evil = "web\x1b[2J\u009b2J\x07\x7f\u202egnp.exe\r\nok\xff"

func TestNothingFromOutsideIsObeyedByATerminal(t *testing.T) {
	m := &api.Migration{VolumeName: evil, Phase: "waiting " + evil, State: api.MigrationCopying}
	for name, write := range map[string]func(*bytes.Buffer) error{
		"table": func(b *bytes.Buffer) error {
			table := render.Table{Header: []string{"NAME"}}
			table.Add(evil)
			_, err := table.Write(b, 0)
			return err
		},
		"narrow table": func(b *bytes.Buffer) error {
			table := render.Table{Header: []string{"NAME"}, Rows: [][]string{{evil}}}
			_, err := table.Write(b, 10)
			return err
		},
		"record": func(b *bytes.Buffer) error {
			var r render.Record
			r.Add("name", evil)
			r.Add("names", evil, evil)
			return r.Write(b)
		},
		"line":  func(b *bytes.Buffer) error { render.Line(b, "error: %s", evil); return nil },
		"plain": func(b *bytes.Buffer) error { render.NewPlain(b).Update(m); return nil },
		"bar": func(b *bytes.Buffer) error {
			render.NewBar(b, func() int { return 200 }).Update(m)
			out := strings.Replace(b.String(), "\r\x1b[K", "", 1)
			b.Reset()
			b.WriteString(out)
			return nil
		},
		"JSON": func(b *bytes.Buffer) error {
			return render.JSON(b, map[string]any{"name": evil, "raw": json.RawMessage(`"` + "\u009b\u202e\x7f\U000e0041" + `"`)})
		},
		"JSON line": func(b *bytes.Buffer) error { return render.JSONLine(b, map[string]string{"name": evil}) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if i := strings.IndexAny(b.String(), "\x1b\u009b\x07\x7f\u202e\r\U000e0041"); i >= 0 {
			t.Errorf("%s: %q", name, b.String())
		}
		if strings.HasPrefix(name, "JSON") && !json.Valid(b.Bytes()) {
			t.Errorf("%s is not JSON: %q", name, b.String())
		}
		if name == "table" && b.String() != "NAME\nweb\\x1b[2J\\u009b2J\\a\\x7f\\u202egnp.exe\\r\\nok\uFFFD\n" {
			t.Errorf("%s: %q", name, b.String())
		}
	}
}

func TestWhatPeopleWriteIsShownAsItIs(t *testing.T) {
	for _, s := range []string{"", "web 1", "schöne Grüße – 你好 🙂", "a\u00a0b"} {
		if render.Cell(s) != s || render.Text(s+"\n\tmore") != s+"\n\tmore" {
			t.Errorf("%q is shown as %q", s, render.Cell(s))
		}
	}
}
