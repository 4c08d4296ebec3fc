// SPDX-License-Identifier: Apache-2.0

package treetest

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/protocol"
	"github.com/volferry/volferry/internal/routes"
)

// firstProtocol has every member of every body that a program of protocol 1 takes. The first
// released version, 0.1.0, has that protocol: 'go test -run Neighbours -update' writes the file
// until then, and afterwards the file never changes.
const (
	firstProtocol = "testdata/first_protocol.txt"
	unreleased    = "0.1.0-dev"
)

// bodyField is a member of the body of a request.
type bodyField struct {
	name     string // with that of its type
	kind     string
	required bool
	needs    string // the tag
}

func (f bodyField) String() string {
	if f.required {
		return f.name + " " + f.kind + " required"
	}
	return f.name + " " + f.kind
}

// bodyFields returns the members of all bodies, each once, by name.
func bodyFields() []bodyField {
	var all []bodyField
	seen := map[reflect.Type]bool{}
	for _, d := range routes.All() {
		in := reflect.TypeOf(d.In())
		if in != nil {
			all = appendFields(all, in, seen)
		}
	}
	slices.SortFunc(all, func(a, b bodyField) int { return strings.Compare(a.name, b.name) })
	return slices.CompactFunc(all, func(a, b bodyField) bool { return a.name == b.name })
}

func appendFields(all []bodyField, t reflect.Type, seen map[reflect.Type]bool) []bodyField {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || seen[t] || t.PkgPath() == "time" {
		return all
	}
	seen[t] = true
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || f.Anonymous || name == "" || name == "-" {
			continue
		}
		optional := strings.Contains(options, "omitempty") || strings.Contains(f.Tag.Get("schema"), "optional") || f.Type.Kind() == reflect.Pointer
		all = append(all, bodyField{name: t.Name() + "." + name, kind: f.Type.String(), required: !optional, needs: f.Tag.Get("needs")})
		all = appendFields(all, f.Type, seen)
	}
	return all
}

// Programs of two versions work together while one is upgraded after the other, so a request
// of one has to mean the same to the other, or be refused.
func TestARequestOfOneVersionIsOneOfItsNeighbours(t *testing.T) {
	if *update {
		writeFirstProtocol(t)
	}
	text, err := os.ReadFile(firstProtocol)
	if err != nil {
		t.Fatal(err)
	}
	first, types := map[string]string{}, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		first[name] = strings.TrimSpace(line)
		typeName, _, _ := strings.Cut(name, ".")
		types[typeName] = true
	}
	known := protocol.Own().Features
	for _, f := range bodyFields() {
		typeName, _, _ := strings.Cut(f.name, ".")
		was, old := first[f.name]
		delete(first, f.name)
		switch {
		case f.needs != "" && f.needs != "-" && !slices.Contains(known, f.needs):
			t.Errorf("%s needs %q, which is no feature of internal/protocol", f.name, f.needs)
		case old && was != f.String() && was != f.String()+" required":
			t.Errorf("%s was %q in the first protocol and is %q: an older program sends, or takes, what it was", f.name, was, f)
		case !old && types[typeName] && (f.required || f.needs == ""):
			t.Errorf("%s is new: programs of the version before send requests without it, and do not know it. Make it optional (omitempty), and give it the tag needs: "+
				`with "-" if such a program may leave it unread, or else with the name of a feature, which is added to internal/protocol`, f.name)
		}
	}
	for _, was := range first {
		t.Errorf("%s is gone: an older program may send it", was)
	}
}

// writeFirstProtocol writes the file of the first protocol, which has no field that needs a
// feature.
func writeFirstProtocol(t *testing.T) {
	t.Helper()
	version, err := os.ReadFile("../../VERSION")
	if err != nil || strings.TrimSpace(string(version)) != unreleased {
		t.Fatalf("the version is %q (%v): the first protocol was released, and never changes", version, err)
	}
	var text strings.Builder
	for _, f := range bodyFields() {
		if f.needs != "" {
			t.Errorf("%s has the tag needs, and is new in no protocol", f.name)
		}
		text.WriteString(f.String() + "\n")
	}
	if err := os.WriteFile(firstProtocol, []byte(text.String()), 0o644); err != nil { //nolint:gosec // a file of the tree
		t.Fatal(err)
	}
}
