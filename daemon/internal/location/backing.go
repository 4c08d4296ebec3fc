// SPDX-License-Identifier: Apache-2.0

package location

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
	"github.com/volferry/volferry/internal/api"
)

// maxBacking is how many images of a chain are looked at; QEMU and libvirt have no
// longer ones that work.
const maxBacking = 200

// leansOn says whether a disk whose definition does not say where its chain ends has
// the place further down in it. Only the headers of images that are said to be qcow2
// are read: what is in a raw image is the guest's to write.
func (p Place) leansOn(d *hv.Disk) (bool, error) {
	if d.Terminated || len(d.Chain) == 0 {
		return false, nil
	}
	img := d.Chain[len(d.Chain)-1]
	for range maxBacking {
		if img.Format != string(api.FormatQcow2) || img.Path == "" {
			return false, nil
		}
		if _, err := Identify(img.Path); err != nil {
			return false, p.unlessElsewhere(img.Path, err)
		}
		backing, format, err := qemuimg.ReadBacking(img.Path)
		if err != nil {
			return false, fmt.Errorf("read which image %s is over: %w", img.Path, err)
		}
		if backing == "" {
			return false, nil
		}
		var next hv.Image
		for _, path := range backingPaths(img.Path, backing) {
			same, err := p.Is(path)
			if err != nil || same {
				return same, err
			}
			next = hv.Image{Path: path, Format: format}
		}
		if img = next; img.Format == "" { // QEMU would look at the bytes
			img.Format = string(api.FormatQcow2)
		}
	}
	return false, fmt.Errorf("the chain of %s does not end", d.Top().Path)
}

// unlessElsewhere is why, unless that says that there is no image, or that the image
// is on a network filesystem that this place is not on.
func (p Place) unlessElsewhere(path string, why error) error {
	if isAbsent(why) || p.cannotBeOn(path) {
		return nil
	}
	return why
}

// backingPaths are the paths of this host in what an image says of its backing file:
// a path, or QEMU's description of one. None for what comes over a network.
func backingPaths(image, backing string) []string {
	text, isJSON := strings.CutPrefix(backing, "json:")
	switch {
	case isJSON:
		var doc any
		if json.Unmarshal([]byte(text), &doc) != nil {
			return nil
		}
		return filenames(doc)
	case strings.HasPrefix(backing, "file:"):
		backing = strings.TrimPrefix(strings.TrimPrefix(backing, "file:"), "//")
	case strings.Contains(strings.SplitN(backing, "/", 2)[0], ":"):
		return nil // another protocol
	}
	return []string{qemuimg.BackingPath(image, backing)}
}

// filenames are the values of all keys that name a file.
func filenames(doc any) (paths []string) {
	object, ok := doc.(map[string]any)
	if !ok {
		return nil
	}
	for key, value := range object {
		text, isText := value.(string)
		if isText && (key == "filename" || strings.HasSuffix(key, ".filename")) && filepath.IsAbs(text) {
			paths = append(paths, filepath.Clean(text))
		}
		paths = append(paths, filenames(value)...)
	}
	return paths
}
