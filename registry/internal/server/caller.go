// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"strconv"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/mtls"
	"github.com/volferry/volferry/internal/printable"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/validate"
)

// readCall returns the caller of a change. Over TLS the caller is the certificate's identity, and
// a host header must name the same host. Over the Unix socket the caller is the peer, or the host
// in the headers of a local daemon.
func readCall(r *http.Request) (store.Call, error) {
	hostID := viewerOf(r).HostID
	readKey := httpjson.IdempotencyKey
	if hostID != "" {
		readKey = httpjson.DerivedKey
	}
	key, err := readKey(r)
	if err != nil {
		return store.Call{}, err
	}
	call := store.Call{Key: key, Who: whoIs(r), Caller: callerOf(r)}
	if hostID == "" {
		return call, nil
	}
	_, certified := mtls.IdentityOf(r.Context())
	call.Host = &store.HostToken{ID: hostID, Local: !certified}
	text := r.Header.Get(api.EpochHeader)
	if text == "" {
		return call, nil
	}
	if call.Host.Epoch, err = strconv.ParseInt(text, 10, 64); err != nil || call.Host.Epoch < 0 {
		return store.Call{}, api.Errorf(api.CodeInvalidArgument, "the header %s is %.40q, which is no epoch", api.EpochHeader, text)
	}
	return call, nil
}

// whoIs returns the caller for the audit trail. For a daemon it adds the user who made the
// request, from the caller header. It ignores other callers' header: any member of a socket's
// group could name another user.
func whoIs(r *http.Request) string {
	who, said := identityOf(r), r.Header.Get(api.CallerHeader)
	if id, ok := mtls.IdentityOf(r.Context()); ok && id.Kind != mtls.KindHost {
		return who
	}
	if p, ok := httpjson.PeerOf(r.Context()); ok && p.UID != 0 {
		return who
	}
	if said == "" || printable.Text(said) != said || len(who+api.AskedBy+said) > validate.MaxText {
		return who
	}
	return who + api.AskedBy + said
}

// identityOf returns the caller's name by its certificate or the socket. It omits a local daemon's
// PID, which does not identify the requester.
func identityOf(r *http.Request) string {
	if id, ok := mtls.IdentityOf(r.Context()); ok {
		return id.String()
	}
	p, ok := httpjson.PeerOf(r.Context())
	switch {
	case !ok:
		return ""
	case p.UID == 0 && r.Header.Get(api.HostHeader) != "":
		return p.User()
	}
	return p.String()
}

// callerOf returns a name that separates callers for limits: the identity in the certificate, or
// the user at the Unix socket.
func callerOf(r *http.Request) string {
	if p, ok := httpjson.PeerOf(r.Context()); ok {
		return "uid=" + strconv.FormatUint(uint64(p.UID), 10)
	}
	return identityOf(r)
}

func viewerOf(r *http.Request) store.Viewer {
	if id, ok := mtls.IdentityOf(r.Context()); ok {
		return store.Viewer{HostID: id.ID} // empty for operators
	}
	return store.Viewer{HostID: r.Header.Get(api.HostHeader)}
}

// ownHost returns the id of the host in the path. It refuses a host that names another host.
func ownHost(r *http.Request) (string, error) {
	named := r.PathValue("host")
	if own := viewerOf(r).HostID; own != "" && own != named {
		return "", api.Errorf(api.CodeNotYourHost, "the path names host %.80q, and you are host %.80q", named, own)
	}
	return named, nil
}
