// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/mtls"
	"github.com/volferry/volferry/internal/protocol"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/store"
)

// maxWait bounds a long poll. It equals the longest report interval (package store).
const maxWait = 5 * time.Minute

// report requires the same host id in path, body and certificate, and the reported name in the
// certificate.
func (s *hostAPI) report(r *http.Request, call store.Call, in api.HostReport) (api.Host, error) {
	id, err := ownHost(r)
	if err != nil {
		return api.Host{}, err
	}
	if in.ID != id {
		return api.Host{}, api.Errorf(api.CodeInvalidArgument, "the report of host %.80q was sent to the path of another host", in.ID)
	}
	if cert, ok := mtls.IdentityOf(r.Context()); ok && cert.Name != in.Name {
		return api.Host{}, api.Errorf(api.CodeNotYourHost, "the report says that host %s is called %.80q, and its certificate says %s; issue it another one", id, in.Name, cert.Name)
	}
	host, err := s.reports.Receive(r.Context(), call, in)
	if err == nil {
		s.relay.Announced(id, protocol.AnnouncedIn(r.Header))
	}
	return host, err
}

func (s *hostAPI) forget(w http.ResponseWriter, r *http.Request) error {
	call, err := readCall(r)
	if err != nil {
		s.refusals.audit(r, err)
		return err
	}
	volumes, err := boolean(r.URL.Query(), "volumes")
	if err != nil {
		s.refusals.audit(r, err)
		return err
	}
	host, err := s.hosts.Forget(r.Context(), call, httpjson.Reference(r), volumes)
	if err != nil {
		return err
	}
	return routes.ForgetHost.Write(w, http.StatusOK, host)
}

// fence fences a host, and ends its poll so that it notices at once.
func (s *hostAPI) fence(ctx context.Context, call store.Call, ref string, in api.HostFence) (api.Host, error) {
	host, err := s.hosts.Fence(ctx, call, ref, in)
	if err == nil {
		s.relay.EndPoll(host.ID)
	}
	return host, err
}

func (s *hostAPI) rejoin(r *http.Request, call store.Call, in api.HostRejoin) (api.Host, error) {
	id, err := ownHost(r)
	if err != nil {
		return api.Host{}, err
	}
	return s.hosts.Rejoin(r.Context(), call, id, in)
}

// tasks sends a host its tasks, and waits if there are none. A fenced host gets none until it has
// rejoined.
func (s *hostAPI) tasks(w http.ResponseWriter, r *http.Request) error {
	session, wait, err := pollOf(r.URL.Query())
	if err != nil {
		return err
	}
	call, err := readCall(r)
	if err != nil {
		return err
	}
	id, err := ownHost(r)
	if err != nil {
		return err
	}
	tasks, err := s.relay.Fetch(r.Context(), call, id, session, wait, func() error {
		if err := s.admitPoll(call, id); err != nil {
			return err
		}
		s.relay.Announced(id, protocol.AnnouncedIn(r.Header))
		s.hosts.Waits(id)
		return nil
	})
	if err != nil {
		return err
	}
	for i := range tasks {
		tasks[i].Protocol = protocol.Number
	}
	if err := routes.FetchTasks.Write(w, http.StatusOK, tasks); err != nil {
		return err
	}
	if len(tasks) == 0 {
		return nil // saves a write; an empty answer may be lost
	}
	if err := http.NewResponseController(w).Flush(); err != nil {
		s.relay.Lost(id)
	}
	return nil
}

func pollOf(query url.Values) (session string, wait time.Duration, err error) {
	const longest = 128
	session = query.Get("session")
	if session == "" || len(session) > longest {
		return "", 0, api.Errorf(api.CodeInvalidArgument, "the query parameter session names the process that asks, in at most %d bytes", longest)
	}
	if !query.Has("wait_seconds") {
		return session, 0, nil
	}
	seconds, err := strconv.Atoi(query.Get("wait_seconds"))
	if err != nil || seconds < 0 || seconds > int(maxWait/time.Second) {
		return "", 0, api.Errorf(api.CodeInvalidArgument, "the query parameter wait_seconds is a number up to %d, not %.40q", maxWait/time.Second, query.Get("wait_seconds"))
	}
	return session, time.Duration(seconds) * time.Second, nil
}

// admitPoll refuses a host that must first release volumes or report. It reads only memory,
// because many hosts poll. Hosts.Fence updates that memory before fence ends the host's polls.
func (s *hostAPI) admitPoll(call store.Call, hostID string) error {
	host, found := s.hosts.Now(hostID)
	if !found {
		return api.NotFound("host", hostID)
	}
	if host.Status == api.HostFenced || call.Host != nil && call.Host.Epoch != host.Epoch {
		return api.Errorf(api.CodeStaleEpoch, "host %s was fenced: it has to let go of what it lost and rejoin in epoch %d", host.Name, host.Epoch).
			With("epoch", host.Epoch)
	}
	return s.hosts.CheckHeard(host)
}

func (s *hostAPI) answer(r *http.Request, call store.Call, in api.TaskAnswer) (api.Task, error) {
	id, err := ownHost(r)
	if err != nil {
		return api.Task{}, err
	}
	if in.Status < http.StatusOK || in.Status > 599 {
		return api.Task{}, api.Errorf(api.CodeInvalidArgument, "the status %d is none of an answer", in.Status)
	}
	task := r.PathValue("task")
	if err := s.relay.Answer(r.Context(), call, id, task, in); err != nil {
		return api.Task{}, err
	}
	return api.Task{ID: task, Host: id, State: api.TaskDone}, nil
}
