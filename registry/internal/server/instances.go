// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// transitionInstance moves an instance between its host and the shelf. The answer has the members
// of api.ShelvedInstance.
func (s *Server) transitionInstance(w http.ResponseWriter, r *http.Request) error {
	call, in, err := readChange[api.InstanceTransition](r)
	if err != nil {
		return err
	}
	v, err := s.Store.Shelf.Transition(r.Context(), call, httpjson.Reference(r), in)
	if err != nil {
		return err
	}
	return httpjson.WriteAll(w, http.StatusOK, shelvedInstance(v)...)
}

func shelvedInstance(v api.ShelvedInstance) []httpjson.Noun {
	nouns := []httpjson.Noun{{Name: "instance", Value: v.Instance}, {Name: "attachments", Value: v.Attachments}}
	if v.Definition != nil {
		nouns = append(nouns, httpjson.Noun{Name: "definition", Value: *v.Definition})
	}
	return nouns
}

// forgetInstance removes an instance from the registry; with_definition=1 allows an instance
// without a host, and force=1 an instance with disks at other locations than its volumes.
func (s *Server) forgetInstance(w http.ResponseWriter, r *http.Request) error {
	withDefinition, err := boolean(r.URL.Query(), "with_definition")
	if err != nil {
		return err
	}
	force, err := boolean(r.URL.Query(), "force")
	if err != nil {
		return err
	}
	call, err := readCall(r)
	if err != nil {
		return err
	}
	inst, err := s.Store.Instances.Forget(r.Context(), call, httpjson.Reference(r), store.Forget{WithDefinition: withDefinition, Force: force})
	if err != nil {
		return err
	}
	return routes.ForgetInstance.Write(w, http.StatusOK, inst)
}

func (s *Server) unlockInstance(ctx context.Context, call store.Call, ref string, _ routes.None) (api.Instance, error) {
	return s.Store.Instances.Unlock(ctx, call, ref)
}

// unshelve passes the call to the host that is to get the instance. If the request identifies a
// host, the call has its name, because a daemon recognizes itself by its name.
func (s *Server) unshelve(w http.ResponseWriter, r *http.Request) error {
	call, in, err := readChange[api.InstanceUnshelve](r)
	if err != nil {
		return err
	}
	if in.Host != "" {
		host, err := s.Store.Hosts.Get(r.Context(), in.Host)
		if err != nil {
			return err
		}
		in.Host = host.Name
	}
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode body: %w", err)
	}
	status, answer, err := s.ask(r, asAsked(r, "", body), call.Key, resolving(r, "", in, s.toUnshelve))
	if err != nil {
		return err
	}
	if winner := s.wonBy(r, status, answer); winner != nil {
		return winner
	}
	handOn(w, status, answer)
	return nil
}

// wonBy returns the refusal of an unshelve that lost against another host, which only the registry
// can name; nil if the host has not refused with not_your_host.
func (s *Server) wonBy(r *http.Request, status int, answer []byte) error {
	if refused := relay.Refusal(status, answer); refused == nil || refused.Code != api.CodeNotYourHost {
		return nil
	}
	i, err := s.Store.Instances.Get(r.Context(), httpjson.Reference(r), store.Viewer{})
	if err != nil || i.Host == "" {
		return nil //nolint:nilerr // what the host says stands
	}
	return api.Errorf(api.CodeConflict, "cannot unshelve instance %s there: host %s has it, and it is %s", i.Name, i.Host, i.State).With("state", i.State).With("host", i.Host)
}

// shelvedOr changes an attachment by shelved if no host has the instance, else by its host. In the
// first case the answer has an attachment and no op. A request that was passed to a host before
// goes there again.
func shelvedOr[In any](s *Server, route routes.Route[In, api.Attachment], shelved func(context.Context, store.Call, string, In) (api.Attachment, error), find finder[In]) httpjson.Route {
	return route.ServedByRegistry(func(w http.ResponseWriter, r *http.Request) error {
		call, err := readCall(r)
		if err != nil {
			return err
		}
		in, body, err := readBody[In](r)
		if err != nil {
			return err
		}
		done, err := s.shelvedAlone(w, r, call, func(ctx context.Context) (api.Attachment, error) {
			return shelved(ctx, call, httpjson.Reference(r), in)
		})
		if done || err != nil {
			return err
		}
		return s.pass(w, r, asAsked(r, "", body), call.Key, resolving(r, "", in, find))
	})
}

// shelvedAlone answers with the result of do for an attachment of an instance without a host; false
// means that a host must do it. It refuses hosts: they change attachments by themselves.
func (s *Server) shelvedAlone(w http.ResponseWriter, r *http.Request, call store.Call, do func(context.Context) (api.Attachment, error)) (done bool, err error) {
	asked, err := s.isTask(r, call)
	if asked || err != nil {
		return false, err
	}
	a, err := do(r.Context())
	switch {
	case err == nil:
		return true, routes.AttachVolume.Write(w, http.StatusOK, a)
	case !errors.Is(err, workflow.ErrOnHost):
		return false, err
	case call.Host != nil:
		return false, api.Errorf(api.CodeConflict, "a host has the instance: its own daemon attaches volumes to it and detaches them")
	}
	return false, nil
}

// isTask reports whether a request was passed to a host before. Hosts' requests never are.
func (s *Server) isTask(r *http.Request, call store.Call) (bool, error) {
	if call.Key == "" || call.Host != nil {
		return false, nil
	}
	task, _, err := s.Store.Tasks.Get(r.Context(), call.Key)
	if api.CodeOf(err) == api.CodeNotFound {
		return false, nil
	}
	return err == nil && task.State != api.TaskWithdrawn, err
}
