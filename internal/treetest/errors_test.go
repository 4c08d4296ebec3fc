// SPDX-License-Identifier: Apache-2.0

package treetest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
)

// spoken is how a code is said over HTTP and by the exit status of volferryctl.
type spoken struct{ HTTP, Exit int }

// contract is the closed list of error codes as it was promised to users, kept
// apart from the code on purpose. Additions are free; a line that changes or
// goes is a break.
var contract = map[api.Code]spoken{
	"invalid_argument":        {400, 2},
	"permission_denied":       {403, 4},
	"policy_denied":           {403, 4},
	"not_your_host":           {403, 4},
	"root_detach_forbidden":   {403, 4},
	"root_attach_forbidden":   {403, 4},
	"root_volume_missing":     {403, 4},
	"not_found":               {404, 3},
	"conflict":                {409, 4},
	"volume_in_use":           {409, 4},
	"volume_not_available":    {409, 4},
	"multiattached":           {409, 4},
	"migration_active":        {409, 4},
	"no_migration":            {409, 4},
	"state_forbidden":         {409, 4},
	"instance_busy":           {409, 4},
	"instance_locked":         {409, 4},
	"dst_in_use":              {409, 4},
	"same_location":           {409, 4},
	"chain_changed":           {409, 4},
	"copy_not_verified":       {409, 4},
	"past_point_of_no_return": {409, 4},
	"stale_epoch":             {409, 4},
	"stale_generation":        {409, 4},
	"in_use_retype":           {409, 4},
	"unsupported_disk":        {422, 4},
	"size_mismatch":           {422, 4},
	"copy_mismatch":           {422, 4},
	"bitmap_lost":             {409, 4},
	"pause_too_long":          {422, 4},
	"idempotency_mismatch":    {422, 4},
	"no_capable_pool":         {422, 4},
	"no_space":                {507, 4},
	"io_error":                {500, 6},
	"registry_unavailable":    {503, 5},
	"hypervisor_unavailable":  {503, 5},
	"journal_unavailable":     {503, 5},
	"needs_operator":          {500, 7},
	"internal":                {500, 1},
}

func TestErrorCodesAreThoseOfTheContract(t *testing.T) {
	got := map[api.Code]spoken{}
	for _, c := range api.Codes() {
		got[c] = spoken{c.HTTPStatus(), c.ExitStatus()}
	}
	if diff := cmp.Diff(contract, got); diff != "" {
		t.Errorf("error codes (-contract +code):\n%s", diff)
	}
}

// A constant outside the table would be answered with 500 and exit 1.
func TestEveryErrorConstantIsInTheTable(t *testing.T) {
	listed := map[string]bool{}
	for _, c := range api.Codes() {
		listed[string(c)] = true
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "internal/api/errors.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Code" {
			return true
		}
		for i, value := range spec.Values {
			literal, ok := value.(*ast.BasicLit)
			if !ok {
				t.Errorf("%s is not a literal", spec.Names[i].Name)
				continue
			}
			code, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			found++
			if !listed[code] {
				t.Errorf("%s (%s) has no HTTP status and no exit code", spec.Names[i].Name, code)
			}
		}
		return true
	})
	if found == 0 {
		t.Fatal("found no error code in internal/api/errors.go")
	}
}

func TestEveryErrorCodeHasItsLineInTheReference(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/reference/errors.md"))
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([0-9]+) \\| ([0-9]+) \\| .*[a-z].* \\|$")
	documented := map[api.Code]spoken{}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		status, errStatus := strconv.Atoi(m[2])
		exit, errExit := strconv.Atoi(m[3])
		if errStatus != nil || errExit != nil {
			t.Fatalf("bad line: %s", m[0])
		}
		documented[api.Code(m[1])] = spoken{status, exit}
	}
	want := map[api.Code]spoken{}
	for _, c := range api.Codes() {
		want[c] = spoken{c.HTTPStatus(), c.ExitStatus()}
	}
	if diff := cmp.Diff(want, documented); diff != "" {
		t.Errorf("docs/reference/errors.md (-code +docs):\n%s", diff)
	}
}
