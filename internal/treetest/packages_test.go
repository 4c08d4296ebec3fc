// SPDX-License-Identifier: Apache-2.0

package treetest

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestEveryPackageHasExactlyOnePackageComment(t *testing.T) {
	for _, p := range packages(t) {
		files := p.GoFiles
		if len(files) == 0 {
			files = p.TestGoFiles
		}
		var with []string
		for _, name := range files {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc != nil {
				with = append(with, name)
			}
		}
		if len(with) != 1 {
			t.Errorf("%s has %d package comments %v, want 1", p.rel(), len(with), with)
		}
	}
}

// A package is named after what it owns. These names own nothing.
func TestNoPackageIsADrawer(t *testing.T) {
	drawers := []string{"util", "utils", "common", "helper", "helpers", "misc", "shared", "lib", "base"}
	for _, p := range packages(t) {
		if slices.Contains(drawers, p.Name) {
			t.Errorf("%s is named %s", p.rel(), p.Name)
		}
	}
}

// layers is the order of the arrows, top first. A package may import packages
// of lower layers only; what stands in no layer may be imported by whatever
// the compiler allows. Longest prefix wins.
var layers = [][]string{
	{"daemon", "registry", "ctl"},
	{"daemon/internal/adminapi", "daemon/internal/doctor", "ctl/internal/command"},
	{"daemon/internal/programs"},
	{"daemon/internal/config"},
	{"ctl/internal/cmdline"},
	{"daemon/internal/volume", "daemon/internal/attach", "daemon/internal/uplink", "daemon/internal/metrics", "ctl/internal/session", "ctl/internal/web", "registry/internal/relay/relaytest"},
	{"daemon/internal/migrate", "registry/internal/server", "registry/internal/drain", "registry/internal/sharedmove"},
	{"daemon/internal/migrate/parts", "daemon/internal/migrate/monitor"},
	{"daemon/internal/migrate/preflight"},
	{"daemon/internal/migrate/released"},
	{"daemon/internal/migrate/which"},
	{"daemon/internal/migrate/history"},
	{"registry/internal/hostop"},
	{"registry/internal/relay", "registry/internal/reconcile", "daemon/internal/instance", "daemon/internal/migrate/plans"},
	{"daemon/internal/migrate/led", "daemon/internal/migrate/overlay"},
	{"daemon/internal/migrate/pause"},
	{"daemon/internal/migrate/blockjob"},
	{"daemon/internal/migrate/transfer"},
	{"daemon/internal/migrate/place"},
	{"daemon/internal/migrate/seal"},
	{"daemon/internal/migrate/look"},
	{"daemon/internal/migrate/move"},
	{"daemon/internal/instance/plans"},
	{"daemon/internal/instance/shelf", "daemon/internal/instance/repair"},
	{"daemon/internal/instance/power"},
	{"daemon/internal/instance/memory"},
	{"daemon/internal/instance/subject", "daemon/internal/hosttest", "daemon/internal/connector/conformance", "daemon/internal/connector/connectortest"},
	{"daemon/internal/libvirt", "daemon/internal/journal", "daemon/internal/image", "daemon/internal/audit", "daemon/internal/witness", "daemon/internal/connector/pools"},
	{"daemon/internal/diskspec", "daemon/internal/location", "daemon/internal/request", "daemon/internal/guard", "registry/internal/workflow"},
	{"daemon/internal/op", "daemon/internal/hv", "daemon/internal/copy", "registry/internal/store", "registry/internal/storetest", "ctl/internal/render", "ctl/internal/unit", "internal/client"},
	{"daemon/internal/network"},
	{"daemon/internal/rbd"},
	{"daemon/internal/qemuimg", "daemon/internal/nbd", "daemon/internal/connector", "registry/internal/ledger", "registry/internal/validate", "registry/internal/schema", "registry/internal/history", "registry/internal/hostcache", "registry/internal/ratelimit"},
	{"daemon/internal/sandbox", "daemon/internal/storagedaemon", "internal/service", "internal/settings", "internal/mtls", "internal/routes"},
	{"internal/httpjson", "internal/sqlitedb", "internal/fault", "daemon/internal/child"},
	{"internal/protocol"},
	{"internal/version", "daemon/internal/thin", "daemon/internal/quota", "daemon/internal/process", "daemon/internal/openfile", "daemon/internal/osthread"},
	{"internal/atomicfile", "internal/retry", "daemon/internal/migrate/changes"},
	{"internal/medium"},
	{"internal/api"},
	{"internal/humanize", "internal/shell", "internal/printable"},
}

// layerOf returns the layer of a package and the prefix that put it there; -1
// if it stands in none.
func layerOf(rel string) (layer int, prefix string) {
	layer = -1
	for i, names := range layers {
		for _, name := range names {
			if (rel == name || strings.HasPrefix(rel, name+"/")) && len(name) > len(prefix) {
				layer, prefix = i, name
			}
		}
	}
	return layer, prefix
}

func TestArrowsOnlyGoDown(t *testing.T) {
	for _, p := range packages(t) {
		from, own := layerOf(p.rel())
		if from < 0 {
			continue
		}
		for _, imported := range p.Imports {
			rel, ours := strings.CutPrefix(imported, module+"/")
			to, prefix := layerOf(rel)
			if ours && to >= 0 && to <= from && prefix != own {
				t.Errorf("%s imports %s, which is not below it", p.rel(), rel)
			}
		}
	}
}

// Each program has its own half of the truth. What it links shows what it could
// touch.
func TestProgramsDoNotLinkWhatIsNotTheirs(t *testing.T) {
	const (
		libvirt    = "github.com/digitalocean/go-libvirt"
		libvirtXML = "libvirt.org/go/libvirtxml"
		sqlite     = "modernc.org/sqlite"
	)
	forbidden := map[string][]string{
		"daemon":          {module + "/registry", module + "/ctl", module + "/test"},
		"registry":        {module + "/daemon", module + "/ctl", module + "/test", libvirt, libvirtXML},
		"ctl":             {module + "/daemon", module + "/registry", module + "/test", libvirt, libvirtXML, sqlite},
		"internal/client": {module + "/daemon", module + "/registry", module + "/test", libvirt, libvirtXML, sqlite},
	}
	seen := 0
	for _, p := range packages(t) {
		for program, deny := range forbidden {
			if p.rel() != program && !strings.HasPrefix(p.rel(), program+"/") {
				continue
			}
			seen++
			for _, dep := range p.Deps {
				for _, d := range deny {
					if dep == d || strings.HasPrefix(dep, d+"/") {
						t.Errorf("%s links %s", p.rel(), dep)
					}
				}
			}
		}
	}
	if seen == 0 {
		t.Fatal("none of the programs was found")
	}
}

// public are the packages of the surface that a user sees: documents, addresses, and their texts.
var public = []string{"internal/api", "internal/client", "internal/humanize", "internal/medium", "internal/shell"}

// End-to-end tests that reach into a program prove less than a user sees.
func TestTestsFromOutsideSeeOnlyThePublicSurface(t *testing.T) {
	for _, p := range packages(t) {
		if !strings.HasPrefix(p.rel(), "test/") {
			continue
		}
		for _, imported := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			rel, ours := strings.CutPrefix(imported, module+"/")
			if ours && !strings.HasPrefix(rel, "test/") && !slices.Contains(public, rel) {
				t.Errorf("%s imports %s", p.rel(), rel)
			}
		}
	}
}

// The programs are static: CGO_ENABLED=0 must not lose a feature.
func TestNothingNeedsCgo(t *testing.T) {
	for _, p := range packages(t) {
		if slices.Contains(p.Imports, "C") {
			t.Errorf("%s uses cgo", p.rel())
		}
	}
}
