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

// transitionInstance moves an instance between its host and the shelf. The members
// of the answer are those of api.ShelvedInstance.
func (s *Server) transitionInstance(w http.ResponseWriter, r *http.Request) error {
	call, in, err := readChange[api.InstanceTransition](r)
	if err != nil {
		return err
	}
	v, err := s.Store.TransitionInstance(r.Context(), call, httpjson.Reference(r), in)
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

// forgetInstance ends the care of an instance, with_definition=1 also of one that no host has,
// and force=1 also of one whose disks are not where its volumes are.
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
	inst, err := s.Store.ForgetInstance(r.Context(), call, httpjson.Reference(r), store.Forget{WithDefinition: withDefinition, Force: force})
	if err != nil {
		return err
	}
	return routes.ForgetInstance.Write(w, http.StatusOK, inst)
}

// unlockInstance lifts the lock of an operator.
func (s *Server) unlockInstance(ctx context.Context, call store.Call, ref string, _ routes.None) (api.Instance, error) {
	return s.Store.UnlockInstance(ctx, call, ref)
}

// unshelve passes the call on to the host that is to have the instance, by its name
// where one is named: a daemon knows itself by that.
func (s *Server) unshelve(w http.ResponseWriter, r *http.Request) error {
	call, in, err := readChange[api.InstanceUnshelve](r)
	if err != nil {
		return err
	}
	if in.Host != "" {
		host, err := s.Store.Host(r.Context(), in.Host)
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

// wonBy is the refusal of an unshelve whose host says that the instance is not its
// own, as another one was faster, nil if that is not so: the host cannot name it.
func (s *Server) wonBy(r *http.Request, status int, answer []byte) error {
	if refused := relay.Refusal(status, answer); refused == nil || refused.Code != api.CodeNotYourHost {
		return nil
	}
	i, err := s.Store.Instance(r.Context(), httpjson.Reference(r), store.Viewer{})
	if err != nil || i.Host == "" {
		return nil //nolint:nilerr // what the host says stands
	}
	return api.Errorf(api.CodeConflict, "cannot unshelve instance %s there: host %s has it, and it is %s", i.Name, i.Host, i.State).With("state", i.State).With("host", i.Host)
}

// shelvedOr does what is asked of the attachments of an instance by shelved, where
// no host has the instance, and else by its host. Nothing lasts in the first case,
// so there is an attachment in the answer and no op. A request that is known as a
// task goes where it went before.
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

// shelvedAlone answers with what do did to an attachment of an instance that no
// host has, or says that it is for a host to do. That is none of a host's, which
// does it by itself.
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

// isTask reports whether a request has been passed on to a host. Those of hosts are
// not passed on.
func (s *Server) isTask(r *http.Request, call store.Call) (bool, error) {
	if call.Key == "" || call.Host != nil {
		return false, nil
	}
	task, _, err := s.Store.Task(r.Context(), call.Key)
	if api.CodeOf(err) == api.CodeNotFound {
		return false, nil
	}
	return err == nil && task.State != api.TaskWithdrawn, err
}
