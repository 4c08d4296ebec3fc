// SPDX-License-Identifier: Apache-2.0

package api

import (
	"path"
	"strings"
)

// NBDScheme begins the path of a volume that is an export of an NBD server at a Unix socket of
// its host: nbd+unix:///EXPORT?socket=/ABSOLUTE/PATH, as QEMU writes it.
const NBDScheme = "nbd+unix:///"

const socketParameter = "?socket="

// NBDExport is an export of an NBD server. The name of the export may be empty, which is the
// server's default.
type NBDExport struct {
	Name   string
	Socket string
}

// IsNetwork says whether the path of a location is the address of something that no file and no
// device of the host is.
func IsNetwork(path string) bool { return strings.HasPrefix(path, NBDScheme) }

// URI is the export as the path of a location.
func (e NBDExport) URI() string { return NBDScheme + e.Name + socketParameter + e.Socket }

// maxSocketBytes is what a socket's address has room for (sun_path), without its terminator.
const maxSocketBytes = 107

// Check returns what is wrong with the address of an export. Only characters are taken that
// nobody escapes, so that the text is the same for QEMU, libvirt and this program.
func (e NBDExport) Check() error {
	switch {
	case strings.ContainsFunc(e.Name, isEscaped), strings.HasPrefix(e.Name, "/"):
		return invalid("the name %.120q of an NBD export may have letters, digits and the characters . _ - + : @ /, and does not begin with a /", e.Name)
	case len(e.Name) > maxSocketBytes:
		return invalid("the name %.120q of an NBD export is too long", e.Name)
	case !path.IsAbs(e.Socket), path.Clean(e.Socket) != e.Socket, e.Socket == "/":
		return invalid("the socket %.120q of an NBD server is not named by a clean absolute path", e.Socket)
	case strings.ContainsFunc(e.Socket, isEscaped):
		return invalid("the path %.120q of the socket of an NBD server may have letters, digits and the characters . _ - + : @ /", e.Socket)
	case len(e.Socket) > maxSocketBytes:
		return invalid("the path %.120q of the socket of an NBD server is too long", e.Socket)
	}
	return nil
}

func isEscaped(r rune) bool {
	letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	return !letter && !strings.ContainsRune("._-+:@/", r)
}

// ParseNBD reads the path of a location that is an export.
func ParseNBD(uri string) (NBDExport, error) {
	rest, is := strings.CutPrefix(uri, NBDScheme)
	name, socket, found := strings.Cut(rest, socketParameter)
	if !is || !found {
		return NBDExport{}, invalid("%.120q is not the address of an NBD export: write %sEXPORT%s/PATH", uri, NBDScheme, socketParameter)
	}
	e := NBDExport{Name: name, Socket: socket}
	return e, e.Check()
}
