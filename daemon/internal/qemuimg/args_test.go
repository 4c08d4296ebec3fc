// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// builders has one sample of every function of args.go.
func builders() map[string][]string {
	raw, qcow2 := Image{Path: "/pool/a", Format: FormatRaw}, Image{Path: "/pool/b", Format: FormatQCOW2}
	luks := raw
	luks.LUKS = true
	overOpts := Image{Path: "/ovl/x", Format: FormatQCOW2, LUKS: true}.options("", protocolFile)
	return map[string][]string{
		"withKey":           withKey(commitArgs(overOpts, luks.options("backing.", protocolFile), "none"), childFile(2)),
		"createOverlayArgs": createOverlayArgs("/ovl/x", luks, 512, hashMS),
		"createArgs":        createArgs("/pool/new", nil, 512),
		"createArgs over":   createArgs("/pool/new", &Image{Path: "/pool/base", Format: FormatRaw}, 512),
		"measureArgs":       measureArgs(createOptions, 512),
		"resizeArgs":        resizeArgs("/pool/a", 1024),
		"commitArgs":        commitArgs(qcow2.options("", protocolFile), raw.options("backing.", protocolDevice), "none"),
	}
}

// unformatted returns the image arguments without a stated format.
func unformatted(args []string) []string {
	var formats, options, bad []string
	images := 0
	for i := 1; i < len(args); i++ {
		switch args[i] {
		case "-f", "-F", "-O":
			formats = append(formats, args[i])
			i++
		case "-b", "--size": // of an image that is not opened
			images++
			i++
		case "-o", "-t", "-T", "--object":
			i++
		default:
			switch {
			case strings.HasPrefix(args[i], "driver="):
				options = append(options, args[i])
			case strings.HasPrefix(args[i], "/"):
				images++
			}
		}
	}
	if len(formats) < images {
		bad = append(bad, "an image without -f, -F or -O")
	}
	if len(options) > 0 && !slices.Contains(args, "--image-opts") {
		bad = append(bad, "a description without --image-opts")
	}
	for _, o := range options {
		if strings.Count(o, "driver=") != 2*strings.Count(o, "file.filename=") {
			bad = append(bad, "a node without driver= in "+o)
		}
	}
	if images+len(options) == 0 {
		bad = append(bad, "no image at all")
	}
	return bad
}

func TestEveryCommandLineStatesEveryFormat(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "args.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	samples := builders()
	for _, decl := range file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		args, ok := samples[fn.Name.Name]
		if !ok {
			t.Errorf("%s has no sample in this test", fn.Name.Name)
			continue
		}
		if bad := unformatted(args); bad != nil {
			t.Errorf("%s: %v in %q", fn.Name.Name, bad, args)
		}
	}
}

func TestTheWalkFindsAMissingFormat(t *testing.T) {
	for _, args := range [][]string{
		{"info", "/a"},
		{"info", "--image-opts", "file.filename=/a"},
		{"commit", "--image-opts", "driver=qcow2,file.driver=file,file.filename=/a,backing.file.filename=/b"},
		{"create", "-f", "qcow2", "-b", "/a", "/b"},
	} {
		if unformatted(args) == nil {
			t.Errorf("%q passes", args)
		}
	}
}

func TestPathsThatMeanSomethingElseAreRefused(t *testing.T) {
	for _, path := range []string{
		"", "relative", "json:{}", "nbd:x", "fat:/etc", "/a/../b", "/a//b", "/a/", "/a\nb", "/a\x00b", "/\xff", "/" + strings.Repeat("a", 5000),
	} {
		var refused *ImageError
		if err := (Image{Path: path, Format: FormatRaw}).validate(); !errors.As(err, &refused) {
			t.Errorf("%q: %v", path, err)
		}
	}
	var refused *ImageError
	if err := (Image{Path: "/a", Format: "vmdk"}).validate(); !errors.As(err, &refused) {
		t.Errorf("vmdk: %v", err)
	}
}
