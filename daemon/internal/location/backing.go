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

// maxBacking is how many images of a chain are read: longer chains do not work in QEMU and
// libvirt.
const maxBacking = 200

// leansOn reports whether this place is a backing image of the disk that the images' headers name,
// and the definition does not. A definition that states the end of the chain has no such image.
func (p Place) leansOn(d *hv.Disk) (bool, error) {
	return walkHeaders(d, func(image string) (bool, error) {
		_, err := Identify(image)
		return err == nil, p.unlessElsewhere(image, err)
	}, p.Is)
}

// Beneath returns the paths of a disk's backing images that the images' headers name, and the
// definition does not. There are none if the definition states the end of the chain. The list ends
// at an absent image.
func Beneath(d *hv.Disk) (paths []string, err error) {
	_, err = walkHeaders(d, func(image string) (bool, error) {
		_, err := Stat(image)
		if isAbsent(err) {
			return false, nil
		}
		return err == nil, err
	}, func(below string) (bool, error) {
		paths = append(paths, below)
		return false, nil
	})
	return paths, err
}

// walkHeaders follows a chain by headers from the last image of the disk's definition, and calls
// visit for each image below. It returns true as soon as visit does, and false at the end of the
// chain or if exists returns false for an image. It reads only images with the stated format
// qcow2: a guest can write anything into a raw image.
func walkHeaders(d *hv.Disk, exists, visit func(path string) (bool, error)) (bool, error) {
	if d.Terminated || len(d.Chain) == 0 {
		return false, nil
	}
	img := d.Chain[len(d.Chain)-1]
	for range maxBacking {
		if img.Format != string(api.FormatQcow2) || img.Path == "" {
			return false, nil
		}
		if ok, err := exists(img.Path); !ok || err != nil {
			return false, err
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
			is, err := visit(path)
			if err != nil || is {
				return is, err
			}
			next = hv.Image{Path: path, Format: format}
		}
		if img = next; img.Format == "" { // QEMU would probe the format
			img.Format = string(api.FormatQcow2)
		}
	}
	return false, fmt.Errorf("the chain of %s does not end", d.Top().Path)
}

// unlessElsewhere returns err, or nil if the image at path cannot be this place: the image is
// absent, or on a network filesystem without this place.
func (p Place) unlessElsewhere(path string, err error) error {
	if isAbsent(err) || p.cannotBeOn(path) {
		return nil
	}
	return err
}

// backingPaths returns the paths of this host in an image's backing file string, which is a path
// or QEMU's description of an image. For a network protocol it returns none.
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
