// SPDX-License-Identifier: Apache-2.0

package medium

import (
	"net"
	"path"
	"strconv"
	"strings"

	"github.com/volferry/volferry/internal/api"
)

// The prefixes of the paths of NBD exports, in QEMU's syntax:
// nbd+unix:///EXPORT?socket=/ABSOLUTE/PATH for a Unix socket of the host, and
// nbd://HOST:PORT/EXPORT for TCP.
const (
	NBDScheme    = "nbd+unix:///"
	NBDTCPScheme = "nbd://"
)

const socketParameter = "?socket="

// NBDExport is an export of an NBD server at Socket or Server. An empty name is the server's
// default export.
type NBDExport struct {
	Name   string
	Socket string
	Server string
}

// URI returns the path of a location for the export.
func (e NBDExport) URI() string {
	if e.Server != "" {
		return NBDTCPScheme + e.Server + "/" + e.Name
	}
	return NBDScheme + e.Name + socketParameter + e.Socket
}

// maxSocketBytes is the capacity of a socket address (sun_path), without its terminator.
const maxSocketBytes = 107

// Check validates an export. It accepts only characters that need no escaping, so that the text is
// the same for QEMU, libvirt and Volferry.
func (e NBDExport) Check() error {
	switch {
	case strings.ContainsFunc(e.Name, isEscaped), strings.HasPrefix(e.Name, "/"):
		return api.Errorf(api.CodeInvalidArgument, "the name %.120q of an NBD export may have letters, digits and the characters . _ - + : @ /, and does not begin with a /", e.Name)
	case len(e.Name) > maxSocketBytes:
		return api.Errorf(api.CodeInvalidArgument, "the name %.120q of an NBD export is too long", e.Name)
	case e.Server != "" && e.Socket != "":
		return api.Errorf(api.CodeInvalidArgument, "an NBD server is at a socket or at %.120q, and not at both", e.Server)
	case e.Server != "":
		return CheckServer("NBD server", e.Server)
	case !path.IsAbs(e.Socket), path.Clean(e.Socket) != e.Socket, e.Socket == "/":
		return api.Errorf(api.CodeInvalidArgument, "the socket %.120q of an NBD server is not named by a clean absolute path", e.Socket)
	case strings.ContainsFunc(e.Socket, isEscaped):
		return api.Errorf(api.CodeInvalidArgument, "the path %.120q of the socket of an NBD server may have letters, digits and the characters . _ - + : @ /", e.Socket)
	case len(e.Socket) > maxSocketBytes:
		return api.Errorf(api.CodeInvalidArgument, "the path %.120q of the socket of an NBD server is too long", e.Socket)
	}
	return nil
}

// maxHostBytes is the longest DNS name.
const maxHostBytes = 253

// CheckServer validates the HOST:PORT of a server. Each server has only one valid spelling, so
// that texts can be compared. It refuses IPv6 addresses: give a DNS name.
func CheckServer(what, server string) error {
	host, port, err := net.SplitHostPort(server)
	number, bad := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil, host == "", len(host) > maxHostBytes, strings.ContainsFunc(host, isNotOfHost), strings.ContainsAny(host[:1]+host[len(host)-1:], ".-"):
		return api.Errorf(api.CodeInvalidArgument, "the %s %.120q is not HOST:PORT with a name in lower case, or an IPv4 address", what, server)
	case bad != nil, number == 0, strconv.FormatUint(number, 10) != port:
		return api.Errorf(api.CodeInvalidArgument, "the %s %.120q has no port from 1 to 65535", what, server)
	}
	return nil
}

func isNotOfHost(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '.' && r != '-'
}

func isEscaped(r rune) bool {
	letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	return !letter && !strings.ContainsRune("._-+:@/", r)
}

// ParseNBD parses the path of a location as an NBD export.
func ParseNBD(uri string) (NBDExport, error) {
	if rest, is := strings.CutPrefix(uri, NBDTCPScheme); is {
		server, name, found := strings.Cut(rest, "/")
		if !found || server == "" {
			return NBDExport{}, api.Errorf(api.CodeInvalidArgument, "%.120q is not the address of an NBD export: write %sHOST:PORT/EXPORT", uri, NBDTCPScheme)
		}
		e := NBDExport{Name: name, Server: server}
		return e, e.Check()
	}
	rest, is := strings.CutPrefix(uri, NBDScheme)
	name, socket, found := strings.Cut(rest, socketParameter)
	if !is || !found {
		return NBDExport{}, api.Errorf(api.CodeInvalidArgument, "%.120q is not the address of an NBD export: write %sEXPORT%s/PATH or %sHOST:PORT/EXPORT", uri, NBDScheme, socketParameter, NBDTCPScheme)
	}
	e := NBDExport{Name: name, Socket: socket}
	return e, e.Check()
}
