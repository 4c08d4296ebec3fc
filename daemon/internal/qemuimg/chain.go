// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/volferry/volferry/internal/shell"
)

// ChainError reports that an image's header names another backing image than Volferry has stored:
// the header was changed since.
type ChainError struct {
	Path string
	// Is is the backing image in the header, Stored the stored one; nil for none.
	Is, Stored *Image
}

func (e *ChainError) Error() string {
	name := func(i *Image) string {
		if i == nil {
			return "none"
		}
		return i.String()
	}
	return fmt.Sprintf("%s names the backing file %s, and %s was stored", e.Path, name(e.Is), name(e.Stored))
}

// BackingError reports that a backing file cannot be opened.
type BackingError struct {
	Backing string
	Err     error
}

func (e *BackingError) Error() string {
	return fmt.Sprintf("open the backing file %s: %v", e.Backing, e.Err)
}

func (e *BackingError) Unwrap() error { return e.Err }

// open opens an existing image with the images below it. A qcow2 image must have no internal
// snapshots, and exactly the backing image in Backing. flags are as for open(2): access mode, and
// whether a link is followed.
func open(i Image, flags int) (*opened, error) {
	if err := i.validate(); err != nil {
		return nil, err
	}
	o, err := openAny(i, flags)
	if err != nil {
		return nil, err
	}
	if err = o.readSize(); err == nil {
		o.below, err = openBelow(o)
	}
	if err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

// openBelow opens the stored backing image of o if o's header names it. It does not read the
// content of a raw image, which the guest can write.
func openBelow(o *opened) (*opened, error) {
	is, err := o.backing()
	if err != nil {
		return nil, err
	}
	want := o.Backing
	switch {
	case is == nil && want == nil:
		return nil, nil
	case want == nil:
		return nil, &ImageError{o.Path, fmt.Sprintf("has a backing file (%q)", is.Path)}
	case is == nil, is.Path != want.Path, is.Format != want.driver():
		return nil, &ChainError{o.Path, is, want}
	}
	image := *want
	image.Files = o.Files
	below, err := openAny(image, os.O_RDONLY)
	if err != nil {
		return nil, &BackingError{want.Path, err}
	}
	if below.below, err = openBelow(below); err != nil {
		below.close()
		return nil, err
	}
	return below, nil
}

func (o *opened) backing() (*Image, error) {
	if o.Format != FormatQCOW2 {
		return nil, nil
	}
	h, err := o.header()
	if err != nil || h.BackingFile == "" {
		return nil, err
	}
	path, err := backingPath(o.Path, h.BackingFile)
	if err != nil {
		return nil, err
	}
	return &Image{Path: path, Format: h.BackingFormat}, nil
}

// ReadChain returns the backing image of a qcow2 image, with all images below it, from the
// headers. It returns nil for an image without a backing image or with the stated format raw, and
// an *ImageError if a header does not state the format of the next image, or an image is not a
// file or device of this host.
func ReadChain(i Image) (*Image, error) {
	var below *Image
	at, files := &below, i.Files
	for range MaxBacking {
		if err := i.validate(); err != nil {
			return nil, err
		}
		o, err := openAny(i, os.O_RDONLY)
		if err != nil && below != nil {
			err = &BackingError{i.Path, err}
		}
		if err != nil {
			return nil, err
		}
		next, err := o.backing()
		o.close()
		switch {
		case err != nil:
			return nil, err
		case next == nil:
			return below, nil
		case next.Format == "":
			return nil, unnamedFormat(i.Path, next.Path)
		}
		*at, i = next, *next
		at, i.Files = &next.Backing, files
	}
	return nil, &ImageError{i.Path, "its chain does not end"}
}

func unnamedFormat(path, backing string) *ImageError {
	return &ImageError{path, fmt.Sprintf("it does not say in which format its backing file %s is, and nobody may guess that from its bytes; "+
		"if you know it, write it down while no guest has the image: `%s`, with raw or qcow2 for FORMAT", backing, rebaseLine(backing, path))}
}

func rebaseLine(backing, image string) string {
	return shell.Line("qemu-img", "rebase", "-u", "-f", "qcow2", "-b", backing, "-F", "FORMAT", "--", image)
}

// backingPath returns the path of a backing file that is a file or device of this host, as QEMU
// interprets its name.
func backingPath(image, backing string) (string, error) {
	elsewhere := &ImageError{image, fmt.Sprintf("its backing file is %.200q, and only a plain path can be kept track of; name it by its path, while no guest has the image: "+
		"`%s`", backing, rebaseLine("PATH", image))}
	switch {
	case strings.HasPrefix(backing, "json:"):
		path, ok := pathOfJSON(strings.TrimPrefix(backing, "json:"))
		if !ok {
			return "", elsewhere
		}
		backing = path
	case strings.HasPrefix(backing, "file:/"):
		backing = strings.TrimPrefix(backing, "file:")
	case strings.Contains(strings.SplitN(backing, "/", 2)[0], ":"):
		return "", elsewhere // another protocol
	}
	return BackingPath(image, backing), nil
}

// BackingPath returns the clean path of the file that QEMU opens for the path in an image's
// header, which may be relative to the image. If .. follows a symbolic link, it resolves the path
// as the kernel does.
func BackingPath(image, named string) string {
	if !filepath.IsAbs(named) {
		dir, _ := filepath.Split(image)
		named = dir + named
	}
	if slices.Contains(strings.Split(named, "/"), "..") {
		dir, file := filepath.Split(named)
		if real, err := filepath.EvalSymlinks(dir); err == nil { // otherwise it cannot be opened
			return filepath.Join(real, file)
		}
	}
	return filepath.Clean(named)
}

func pathOfJSON(text string) (string, bool) {
	var doc struct {
		Driver   string `json:"driver"`
		Filename string `json:"filename"`
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if dec.Decode(&doc) != nil || (doc.Driver != protocolFile && doc.Driver != protocolDevice) {
		return "", false
	}
	return doc.Filename, filepath.IsAbs(doc.Filename)
}
