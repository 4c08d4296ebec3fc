// SPDX-License-Identifier: Apache-2.0

// Program man writes the man pages of the packages into a directory: out of the sources
// beside it, and of the reference in docs/, so that nothing is written twice.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"
)

// page is one man page. Its text is that of the source, below the name.
type page struct {
	name, section, about string
	// source is a file, and heading the one of its sections that is taken, all of it if
	// that is "".
	source, heading string
}

var pages = []page{
	{"volferryctl", "1", "move volumes and change boot volumes of libvirt hosts", "docs/reference/cli.md", ""},
	{"volferryd", "8", "daemon of one hypervisor: moves volumes while guests use them", "packaging/man/volferryd.md", ""},
	{"volferry-registry", "8", "registry of a site: attachments and locks of volumes", "packaging/man/volferry-registry.md", ""},
	{"volferryd.toml", "5", "configuration of volferryd", "docs/reference/config.md", "volferryd"},
	{"volferry-registry.toml", "5", "configuration of volferry-registry, /etc/volferry/registry.toml", "docs/reference/config.md", "volferry-registry"},
	{"volferry-errors", "7", "error codes of Volferry, and what to do", "docs/reference/errors.md", ""},
	{"volferry-states", "7", "states of volumes, attachments, instances and migrations", "docs/reference/states.md", ""},
	{"volferry-metrics", "7", "metrics of volferryd and volferry-registry", "docs/reference/metrics.md", ""},
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: man DIRECTORY (from the top of the repository)")
		os.Exit(2)
	}
	for _, p := range pages {
		if err := p.write(".", os.Args[1]); err != nil {
			fmt.Fprintf(os.Stderr, "man: %v\n", err)
			os.Exit(1)
		}
	}
}

// write makes the page in dir. Top is the top of the repository.
func (p page) write(top, dir string) error {
	text, err := os.ReadFile(filepath.Join(top, p.source))
	if err != nil {
		return err
	}
	roff, err := p.roff(string(text))
	if err != nil {
		return err
	}
	file := filepath.Join(dir, p.name+"."+p.section)
	return os.WriteFile(file, roff, 0o644) //nolint:gosec // everybody reads man pages
}

var (
	title = regexp.MustCompile(`(?m)\A# .*\n`)
	// link is a link to another page of the documentation, of which the text is kept.
	link = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// leftAdjusted is the line of a page behind which its text is told not to be stretched: many words
// here, as names of metrics, are too long to fill a line with.
var leftAdjusted = regexp.MustCompile(`(?m)^\.TH .*$`)

// roff is the page. A man page has its headings in capitals, and no links.
func (p page) roff(text string) ([]byte, error) {
	text = title.ReplaceAllString(text, "")
	if p.heading != "" {
		_, section, found := strings.Cut(text, "\n## "+p.heading+"\n")
		if !found {
			return nil, fmt.Errorf("%s has no section %s", p.source, p.heading)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		text = strings.ReplaceAll(section, "\n### ", "\n## ")
	}
	text = link.ReplaceAllString(text, "$1")
	lines := withoutTables(strings.Split(text, "\n"))
	for i, line := range lines {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			lines[i] = "# " + strings.ToUpper(heading)
		} else if heading, ok := strings.CutPrefix(line, "### "); ok {
			lines[i] = "## " + heading
		}
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%% %s %s\n\n# NAME\n\n%s - %s\n\n# DESCRIPTION\n\n", strings.ToUpper(p.name), p.section, p.name, p.about)
	out.WriteString(strings.Join(lines, "\n"))
	return leftAdjusted.ReplaceAll(md2man.Render(out.Bytes()), []byte("$0\n.ad l")), nil
}
