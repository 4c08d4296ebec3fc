// SPDX-License-Identifier: Apache-2.0

// Package domainfiles lists the files in the definition of a libvirt domain.
package domainfiles

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// File is a file, a directory or a volume of a pool that the definition of a domain names.
type File struct {
	// What is the element (nvram) or the disk (cdrom sda).
	What string
	// Path is absolute, as written, or the name of a volume of a pool.
	Path string
	Pool string
}

// Named returns each absolute path and each volume of a pool in the definition of a domain, once.
// It also reads unknown elements, for later versions of libvirt. It omits texts for people,
// metadata of other programs, and paths inside a word of the emulator's command line; words end at
// commas and equals signs.
func Named(definition string) ([]File, error) {
	w := walk{decoder: xml.NewDecoder(strings.NewReader(definition))}
	for {
		token, err := w.decoder.Token()
		if errors.Is(err, io.EOF) {
			return onceEach(w.found), nil
		}
		if err != nil {
			return nil, fmt.Errorf("parse domain XML: %w", err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			if err := w.start(t); err != nil {
				return nil, err
			}
		case xml.CharData:
			if len(w.within) > 0 { // else it is outside the document
				w.value("", string(t))
			}
		case xml.EndElement:
			w.end()
		}
	}
}

// unread has the elements of a domain that Named skips: they name no files of the guest.
var unread = []string{"name", "title", "description", "metadata", "emulator"}

type walk struct {
	decoder *xml.Decoder
	within  []string
	found   []File
	// disk describes the current disk: the index of its first file in found, its kind, and its
	// target.
	disk struct {
		begins       int
		kind, target string
	}
}

func (w *walk) start(t xml.StartElement) error {
	name := t.Name.Local
	if slices.Contains(unread, name) {
		return w.decoder.Skip()
	}
	w.within = append(w.within, name)
	if w.isDisk() {
		w.disk.begins, w.disk.kind, w.disk.target = len(w.found), "disk", ""
	}
	var pool, volume string
	for _, a := range t.Attr {
		switch {
		case name == "source" && a.Name.Local == "pool":
			pool = a.Value
		case name == "source" && a.Name.Local == "volume":
			volume = a.Value
		case w.isDisk() && a.Name.Local == "device":
			w.disk.kind = a.Value
		case name == "target" && a.Name.Local == "dev" && w.inDisk():
			w.disk.target = a.Value
		default:
			w.value(a.Name.Local, a.Value)
		}
	}
	if pool != "" && volume != "" {
		w.add(File{What: w.what(""), Path: volume, Pool: pool})
	}
	return nil
}

func (w *walk) end() {
	if w.isDisk() {
		for i := w.disk.begins; i < len(w.found); i++ {
			w.found[i].What = strings.TrimSpace(w.disk.kind + " " + w.disk.target)
		}
	}
	w.within = w.within[:len(w.within)-1]
}

func (w *walk) isDisk() bool { return len(w.within) == 3 && w.inDisk() }

func (w *walk) inDisk() bool {
	return len(w.within) >= 3 && w.within[1] == "devices" && w.within[2] == "disk"
}

func (w *walk) value(attribute, value string) {
	value = strings.TrimSpace(value)
	if strings.HasPrefix(value, "/") {
		w.add(File{What: w.what(attribute), Path: value})
		return
	}
	for _, word := range strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == '=' }) {
		if strings.HasPrefix(word, "/") {
			w.add(File{What: w.what(attribute), Path: word})
		}
	}
}

// what returns File.What for the current element: the device, element of <os> or element of
// <domain> that contains it.
func (w *walk) what(attribute string) string {
	what := w.within[min(1, len(w.within)-1)]
	if len(w.within) > 2 && (what == "devices" || what == "os") {
		what = w.within[2]
	}
	switch last := w.within[len(w.within)-1]; {
	case attribute == "template":
		return what + " template"
	case last == "log" && what != last, last == "table" && what != last:
		return what + " " + last
	}
	return what
}

func (w *walk) add(f File) { w.found = append(w.found, f) }

func onceEach(files []File) []File {
	out := files[:0]
	for _, f := range files {
		if !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}
