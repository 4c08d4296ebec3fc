// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/volferry/volferry/internal/client"
)

//go:embed page
var embedded embed.FS

// About describes the command that serves the page.
type About struct {
	// Target is the socket or registry with the shown state.
	Target string `json:"target"`
	// Command begins the command lines that the page recommends for this target.
	Command string `json:"command"`
	Version string `json:"version"`
}

// Server serves the page to one browser.
type Server struct {
	about     About
	admission *admission
	forward   forwarder
}

// New returns a server that shows the state of c's target.
func New(c *client.Client, about About) *Server {
	transport, base := c.Transport()
	return &Server{about: about, admission: newAdmission(), forward: forwarder{transport, base}}
}

// URL returns the URL that opens the page, served at address. It works once.
func (s *Server) URL(address net.Addr) string {
	return fmt.Sprintf("http://%s%s?token=%s", address, openPath, s.admission.token)
}

// Serve answers on l until ctx ends. It closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    16 << 10,
		// Errors of a browser do not concern the command's user.
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	// Streams have no end to wait for.
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the page: %w", err)
	}
	return nil
}

func (s *Server) handler() http.Handler {
	shown := http.NewServeMux()
	for _, d := range forwarded {
		shown.Handle(d.String(), s.admission.withKey(s.forward.handler(d)))
	}
	shown.Handle("GET /about", s.admission.withKey(http.HandlerFunc(s.sayAbout)))
	page, err := fs.Sub(embedded, "page")
	if err != nil {
		panic(err) // the name is a constant
	}
	shown.Handle("GET /", http.FileServerFS(page))

	all := http.NewServeMux()
	all.HandleFunc("GET "+openPath, s.admission.open)
	all.Handle("/", s.admission.only(shown))
	return guarded(all)
}

func (s *Server) sayAbout(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.about)
}
