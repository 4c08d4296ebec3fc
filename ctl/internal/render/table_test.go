// SPDX-License-Identifier: Apache-2.0

package render

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func volumes() *Table {
	t := &Table{Header: []string{"NAME", "ID", "SIZE", "LOCATION"}}
	t.Add("db-data", "0197a1b2-0000-7000-8000-000000000001", "20GiB", "/var/lib/libvirt/images/db-data.raw")
	t.Add("web", "0197a1b2-0001-7000-8000-000000000002", "512MiB", "")
	return t
}

func TestTableFitsTheTerminal(t *testing.T) {
	for name, c := range map[string]struct {
		width     int
		shortened bool
		want      string
	}{
		"no terminal": {0, false, `
NAME     ID                                    SIZE    LOCATION
db-data  0197a1b2-0000-7000-8000-000000000001  20GiB   /var/lib/libvirt/images/db-data.raw
web      0197a1b2-0001-7000-8000-000000000002  512MiB  -
`},
		"wide": {200, false, `
NAME     ID                                    SIZE    LOCATION
db-data  0197a1b2-0000-7000-8000-000000000001  20GiB   /var/lib/libvirt/images/db-data.raw
web      0197a1b2-0001-7000-8000-000000000002  512MiB  -
`},
		// Ids of the same moment begin alike: eight digits would not distinguish them.
		"ids shortened": {80, true, `
NAME     ID             SIZE    LOCATION
db-data  0197a1b2-0000  20GiB   /var/lib/libvirt/images/db-data.raw
web      0197a1b2-0001  512MiB  -
`},
		"path cut": {50, true, `
NAME     ID             SIZE    LOCATION
db-data  0197a1b2-0000  20GiB   …mages/db-data.raw
web      0197a1b2-0001  512MiB  -
`},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			shortened, err := volumes().Write(&b, c.width)
			if err != nil || shortened != c.shortened {
				t.Errorf("shortened = %v, %v; want %v", shortened, err, c.shortened)
			}
			if diff := cmp.Diff(strings.TrimPrefix(c.want, "\n"), b.String()); diff != "" {
				t.Errorf("table (-want +got):\n%s", diff)
			}
			for line := range strings.Lines(b.String()) {
				if n := utf8.RuneCountInString(strings.TrimSpace(line)); c.width > 0 && n > c.width {
					t.Errorf("line of %d cells on a terminal of %d: %s", n, c.width, line)
				}
			}
		})
	}
}

func TestWritingATableLeavesItAsItWas(t *testing.T) {
	table := volumes()
	if _, err := table.Write(&strings.Builder{}, 40); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(volumes(), table); diff != "" {
		t.Errorf("table after Write (-want +got):\n%s", diff)
	}
}

func TestRecordHasItsValuesInOneColumn(t *testing.T) {
	var r Record
	r.Add("id", "v1")
	r.Add("attachments", "a1", "a2")
	r.Add("migration", "")
	r.Add("journal")
	r.AddIf("error", "")
	var b strings.Builder
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	want := `id:           v1
attachments:  a1
              a2
migration:    -
journal:      -
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}
