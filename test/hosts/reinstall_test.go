// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/site"
)

// What docs/how-to/reinstall-a-host.md calls things.
const (
	reinstallPage   = "docs/how-to/reinstall-a-host.md"
	giveBack        = "Give it back its id"
	forgetWhatItWas = "Forget what it was"
)

// A host that has lost its state is the host that it was by the commands of the page, with
// TLS and without, or is a new one.
func TestHostThatWasInstalledAgainComesBackAsThePageSays(t *testing.T) {
	leftToTestHosts(t)
	t.Parallel()
	c := startCluster(t, "hv1")
	h := c.Hosts[0]
	admin := c.Registry.Caller()
	g := c.guest(t, h)
	v := c.volume(t, h, "db", localPool, "default")
	g.attach(t, h.Caller, v, 0)
	was := get[api.Host](t, admin, "host", "host", "show", "hv1")

	for _, tls := range []bool{true, false} {
		if !tls {
			h.Registry, h.TLS = "unix://"+c.Registry.Socket(), ""
		}
		reinstall(t, c)
		refusedByName(t, h, was.ID)
		p := openPage(t, reinstallPage, c.reinstalls(t, was.ID))
		p.follow(t, beginning)
		for _, b := range p.section(t, giveBack) {
			if tls == strings.HasPrefix(b.Text, "volferry-registry") {
				if err := p.Do(t.Context(), b); err != nil {
					t.Fatal(err)
				}
			}
		}
		eventually(t, "the host is the one that it was", func() bool {
			out, err := h.Caller.Ctl(t.Context(), "status")
			return err == nil && strings.Contains(out, "("+was.ID+")") && strings.Contains(out, "registry:") && strings.Contains(out, "ok: connected")
		})
		if got := get[api.Volume](t, h.Caller, "volume", "volume", "show", v.Name); got.ID != v.ID || got.Status != api.VolumeInUse {
			t.Errorf("its volume is %+v, want %s in-use", got, v.ID)
		}
		ctl(t, h.Caller, "volume", "create", fmt.Sprint("new-tls-", tls), "--size", "1MiB", "--pool", localPool)
	}

	reinstall(t, c)
	refusedByName(t, h, was.ID)
	r := c.reinstalls(t, was.ID)
	a := get[[]api.Attachment](t, admin, "attachments", "attachment", "list")[0]
	r.Words["A"], r.Words["I"] = a.ID, a.InstanceID
	p := openPage(t, reinstallPage, r)
	p.section(t, giveBack)
	p.follow(t, beginning)
	p.follow(t, forgetWhatItWas)
	p.assertAllDone(t)
	now := get[api.Host](t, admin, "host", "host", "show", "hv1")
	if now.ID == was.ID || now.Status != api.HostUp {
		t.Errorf("the host is %+v, want a new one that is up", now)
	}
	if got := get[[]api.Instance](t, admin, "instances", "instance", "list", "--host", "hv1"); len(got) != 1 || got[0].ID != a.InstanceID {
		t.Errorf("adopted again: %+v, want the guest", got)
	}
}

// reinstall stops the daemon of the only host, takes all that it knew away, and starts it.
func reinstall(t *testing.T, c *cluster) {
	t.Helper()
	h := c.Hosts[0]
	h.StopDaemon()
	if err := os.RemoveAll(h.State()); err != nil {
		t.Fatal(err)
	}
	if h.TLS != "" {
		if err := os.RemoveAll(h.TLS); err != nil {
			t.Fatal(err)
		}
		if err := c.Registry.Issue(t.Context(), h.TLS, "host", h.Name); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// refusedByName returns when the status of the host names the page and the id of the host
// that has its name.
func refusedByName(t *testing.T, h *site.Host, id string) {
	t.Helper()
	eventually(t, "the status says how to give the host back its id", func() bool {
		out, err := h.Caller.Ctl(t.Context(), "status")
		return err == nil && strings.Contains(out, "reinstall-a-host.md") && strings.Contains(out, "--id "+id)
	})
}

// reinstalls reads the page for the only host.
func (c *cluster) reinstalls(t *testing.T, id string) *site.Reader {
	t.Helper()
	h := c.Hosts[0]
	return &site.Reader{
		At:      h.Caller,
		Sockets: map[string]site.Caller{"R": c.Registry.Caller()},
		Words:   map[string]string{"ID": id},
		Others: map[string]func(context.Context, string) error{
			"systemctl stop":  func(context.Context, string) error { h.StopDaemon(); return nil },
			"systemctl start": func(ctx context.Context, _ string) error { return h.StartDaemon(ctx) },
			"echo": func(context.Context, string) error {
				return os.WriteFile(filepath.Join(h.State(), "host-id"), []byte(id+"\n"), 0o600)
			},
			"volferry-registry issue-cert": func(ctx context.Context, _ string) error {
				h.StopDaemon()
				h.TLS = filepath.Join(h.Dir, "hv1-again")
				if err := c.Registry.Issue(ctx, h.TLS, "host", h.Name, "--id", id); err != nil {
					return err
				}
				return h.StartDaemon(ctx)
			},
			"volferryctl status": func(context.Context, string) error {
				eventually(t, "the registry has the host", func() bool {
					out, err := h.Caller.Ctl(t.Context(), "host", "list")
					return err == nil && strings.Contains(out, " up ")
				})
				return nil
			},
		},
	}
}
