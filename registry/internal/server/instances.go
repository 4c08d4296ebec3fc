// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/httpjson"
	"github.com/volferry/volferry/internal/routes"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

type instanceAPI struct {
	instances *store.Instances
	shelf     *workflow.Shelf
	hosts     *store.Hosts
	forward   *forwarder
	targets   *targets
}

// transition moves an instance between its host and the shelf, the registry's data of instances
// without a host. The answer has the members of api.ShelvedInstance.
func (s *instanceAPI) transition(w http.ResponseWriter, r *http.Request) error {
	call, in, err := readChange[api.InstanceTransition](r)
	if err != nil {
		return err
	}
	v, err := s.shelf.Transition(r.Context(), call, httpjson.Reference(r), in)
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

// forget removes an instance from the registry; with_definition=1 allows an instance
// without a host, and force=1 an instance with disks at other locations than its volumes.
func (s *instanceAPI) forget(w http.ResponseWriter, r *http.Request) error {
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
	inst, err := s.instances.Forget(r.Context(), call, httpjson.Reference(r), store.Forget{WithDefinition: withDefinition, Force: force})
	if err != nil {
		return err
	}
	return routes.ForgetInstance.Write(w, http.StatusOK, inst)
}

func (s *instanceAPI) unlock(ctx context.Context, call store.Call, ref string, _ routes.None) (api.Instance, error) {
	return s.instances.Unlock(ctx, call, ref)
}

// unshelve passes the call to the host that is to get the instance. The call has the name of a
// requested host, not its id: a daemon recognizes itself by its name.
func (s *instanceAPI) unshelve(w http.ResponseWriter, r *http.Request) error {
	call, in, err := readChange[api.InstanceUnshelve](r)
	if err != nil {
		return err
	}
	if in.Host != "" {
		host, err := s.hosts.Get(r.Context(), in.Host)
		if err != nil {
			return err
		}
		in.Host = host.Name
	}
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode body: %w", err)
	}
	status, answer, err := s.forward.ask(r, asAsked(r, "", body), call.Key, resolving(r, "", in, s.toUnshelve))
	if err != nil {
		return err
	}
	if winner := s.wonBy(r, status, answer); winner != nil {
		return winner
	}
	handOn(w, status, answer)
	return nil
}

// wonBy returns the refusal, with the winner's name, of an unshelve after another host has won the
// instance (not_your_host), otherwise nil.
func (s *instanceAPI) wonBy(r *http.Request, status int, answer []byte) error {
	if refused := relay.Refusal(status, answer); refused == nil || refused.Code != api.CodeNotYourHost {
		return nil
	}
	i, err := s.instances.Get(r.Context(), httpjson.Reference(r), store.Viewer{})
	if err != nil || i.Host == "" {
		return nil //nolint:nilerr // what the host says stands
	}
	return api.Errorf(api.CodeConflict, "cannot unshelve instance %s there: host %s has it, and it is %s", i.Name, i.Host, i.State).With("state", i.State).With("host", i.Host)
}

// toUnshelve returns the first connected host of those that may unshelve the instance. It first
// stores the operator's request; without it the host may not claim the instance.
func (s *instanceAPI) toUnshelve(ctx context.Context, r *http.Request, in *api.InstanceUnshelve) (target, error) {
	plan, err := s.shelf.PlanUnshelve(ctx, httpjson.Reference(r), in.Host)
	if err != nil {
		return target{}, err
	}
	host, err := s.targets.placement.First(ctx, plan.Hosts)
	if err != nil || !s.targets.placement.Present(host.ID) {
		return target{host, plan.Instance.ID}, err
	}
	return target{host, plan.Instance.ID}, s.shelf.AskUnshelve(ctx, store.Call{Who: whoIs(r)}, plan.Instance.ID, host.ID)
}
