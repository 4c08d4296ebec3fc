// SPDX-License-Identifier: Apache-2.0

package location

import (
	"os"
	"path/filepath"
	"sync"

	"github.com/volferry/volferry/internal/medium"
)

// Place is the target of a path at one moment: an image, or the place of a new image.
type Place struct {
	path string
	kind medium.Kind
	id   Identity
	// export is the name of the export at the NBD server with the socket id. For an image without
	// a node on this host it is the address. Two addresses of one server are not recognized.
	export string
	// absent is true if nothing is at the path. dir and name are then the place where it would be
	// made, if the directory exists.
	absent bool
	dir    Identity
	name   string
	err    error
	madeOf func() (parts, error)
}

// PlaceOf finds the target of a path. If the target is unknown, the Place is the same only for an
// equal path, and a comparison with another path returns an error.
func PlaceOf(path string) Place {
	p := Place{path: path, kind: medium.Of(path)}
	var node string
	if node, p.export, p.err = nodeOf(path); p.err != nil || p.kind.Remote {
		return p
	}
	p.id, p.err = Identify(node)
	p.madeOf = sync.OnceValues(func() (parts, error) { return madeOf(p.id) })
	if isAbsent(p.err) {
		p.absent, p.err = true, nil
		p.findName(node, maxLinks)
	}
	return p
}

// nodeOf returns the path of the file, device or socket of this host that leads to the image at a
// path. For a socket, export is the name of the export there. An image on the network (NBD over
// TCP, RBD) has no node, and export is its address.
func nodeOf(path string) (node, export string, err error) {
	switch kind := medium.Of(path); {
	case kind.Path:
		return path, "", nil
	case kind.Remote:
		return "", path, kind.Check(path)
	}
	e, err := medium.ParseNBD(path)
	if err != nil {
		return "", "", err
	}
	return e.Socket, e.Name, nil
}

// maxLinks is how many symbolic links are followed, as in the kernel.
const maxLinks = 40

func (p *Place) findName(path string, links int) {
	to, err := os.Readlink(path)
	if err == nil && links > 0 {
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		p.findName(filepath.Clean(to), links-1)
		return
	}
	dir, err := Identify(filepath.Dir(path))
	switch {
	case err == nil:
		p.dir, p.name = dir, filepath.Base(path)
	case !isAbsent(err):
		p.err = err
	}
}

// cannotBeOn reports whether a path with an unknown target (its server is down, or denies root any
// access) cannot be this place: the path is on a network filesystem, and this place is not. So a
// server that is down does not affect unrelated images. The result is wrong only for a symbolic
// link on such a filesystem to a file of this host.
func (p Place) cannotBeOn(path string) bool {
	table, err := os.ReadFile(mountInfo)
	if err != nil {
		return false
	}
	m, found := mountOf(string(table), path)
	if !found || !m.network() {
		return false
	}
	dev := p.id.Dev
	if p.absent {
		dev = p.dir.Dev
	}
	return p.id.Block || (dev != 0 && dev != m.dev)
}

// Is reports whether another path leads to the same place, through any link or device node. An
// error means that the answer is unknown.
func (p Place) Is(path string) (bool, error) {
	same, _, err := p.compare(path)
	return same, err
}

func (p Place) compare(path string) (same bool, other Place, err error) {
	if path == "" || p.path == "" {
		return false, other, nil
	}
	if path == p.path {
		return true, other, nil
	}
	if p.err != nil && p.kind.Path == medium.Of(path).Path {
		return false, other, p.err
	}
	other = PlaceOf(path)
	switch {
	case p.kind.Path != other.kind.Path || p.export != other.export:
		return false, other, nil
	case other.err != nil && p.cannotBeOn(path):
		return false, other, nil
	case other.err != nil:
		return false, other, other.err
	case p.absent != other.absent:
		return false, other, nil
	case p.absent:
		return p.name != "" && p.name == other.name && p.dir == other.dir, other, nil
	}
	return p.id == other.id, other, nil
}

// SameImage reports whether two paths name one file or device, through any link or device node.
// Two absent paths are the same if a file made at one would appear at the other. An error means
// that the answer is unknown.
func SameImage(a, b string) (bool, error) {
	return PlaceOf(a).Is(b)
}
