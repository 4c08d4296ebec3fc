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

// maxBacking is how many images of a chain are read at most. Longer chains do not work in QEMU and
// libvirt.
const maxBacking = 200

// leansOn reports whether an image below the disk's stated chain is this place, according to the
// images' headers. If the definition states the end of the chain, there is no such image.
func (p Place) leansOn(d *hv.Disk) (bool, error) {
	return walkHeaders(d, func(image string) (bool, error) {
		_, err := Identify(image)
		return err == nil, p.unlessElsewhere(image, err)
	}, p.Is)
}

// Beneath returns the paths of the images below a disk's stated chain, according to the images'
// headers. If the definition states the end of the chain, there are none. At an absent image the
// list ends.
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

// walkHeaders follows a chain by headers from the end of the disk's definition, and calls found
// for each image. It returns true as soon as found does, and false at the end of the chain or if
// there returns false. It reads only images with the stated format qcow2, because a guest can
// write anything into a raw image.
func walkHeaders(d *hv.Disk, there, found func(path string) (bool, error)) (bool, error) {
	if d.Terminated || len(d.Chain) == 0 {
		return false, nil
	}
	img := d.Chain[len(d.Chain)-1]
	for range maxBacking {
		if img.Format != string(api.FormatQcow2) || img.Path == "" {
			return false, nil
		}
		if ok, err := there(img.Path); !ok || err != nil {
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
			is, err := found(path)
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

// unlessElsewhere returns why, or nil if the image cannot be this place: the image is absent, or
// on a network filesystem without this place.
func (p Place) unlessElsewhere(path string, why error) error {
	if isAbsent(why) || p.cannotBeOn(path) {
		return nil
	}
	return why
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
