// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"slices"

	golibvirt "github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/domainfiles"
)

const maxReads = 5

func (ds *domains) Domains(ctx context.Context) ([]hv.Domain, error) {
	s, err := ds.connection.reads()
	if err != nil {
		return nil, fmt.Errorf("list domains: %w", err)
	}
	doms, err := call(ctx, s, func(lv *golibvirt.Libvirt) ([]golibvirt.Domain, error) {
		doms, _, err := lv.ConnectListAllDomains(1, golibvirt.ConnectListDomainsActive|golibvirt.ConnectListDomainsInactive)
		return doms, err
	})
	if err != nil {
		return nil, fmt.Errorf("list domains: %w", err)
	}
	var found []hv.Domain
	var unreadable []hv.UnreadableDomain
	for _, dom := range doms {
		d, err := ds.readListed(ctx, s, dom)
		switch {
		case err == nil:
			found = append(found, *d)
		case errors.Is(err, hv.ErrNotFound): // deleted after the list was made
		case ctx.Err() != nil || s.isLost():
			return nil, fmt.Errorf("list domains: %w", err)
		default:
			unreadable = append(unreadable, hv.UnreadableDomain{ID: domainID(dom), Name: dom.Name, Err: err})
		}
	}
	if len(unreadable) > 0 {
		return found, fmt.Errorf("list domains: %w", &hv.Unreadable{Domains: unreadable})
	}
	return found, nil
}

// readListed reads a domain for the list of all domains, within a time limit. It makes no call on
// a domain with an unanswered earlier call: every such call occupies a slot of the session.
func (ds *domains) readListed(ctx context.Context, s *session, dom golibvirt.Domain) (*hv.Domain, error) {
	id := domainID(dom)
	if s.silent.has(id) {
		return nil, fmt.Errorf("read domain %s: %w: libvirt has not answered the last question about it yet", id, hv.ErrUnavailable)
	}
	ctx, cancel := context.WithTimeout(ctx, ds.listedTimeout)
	defer cancel()
	d, facts, err := ds.readDomain(ctx, s, dom)
	if err != nil {
		return nil, err
	}
	addFiles(ctx, s, dom, d, facts.xml, facts.configXML)
	return d, nil
}

func (ds *domains) Domain(ctx context.Context, id string) (*hv.Domain, error) {
	s, err := ds.connection.reads()
	if err != nil {
		return nil, fmt.Errorf("read domain %s: %w", id, err)
	}
	dom, err := handle(id)
	if err != nil {
		return nil, err
	}
	d, _, err := ds.readDomain(ctx, s, dom)
	return d, err
}

// handle returns a domain handle for libvirt calls. libvirt finds a domain by the UUID alone;
// handle does not check that the domain exists.
func handle(id string) (golibvirt.Domain, error) {
	u, err := uuid.Parse(id)
	if err != nil {
		return golibvirt.Domain{}, fmt.Errorf("look up domain %q: %w: %w", id, hv.ErrNotFound, err)
	}
	return golibvirt.Domain{UUID: golibvirt.UUID(u), ID: -1}, nil
}

func (ds *domains) find(ctx context.Context, id string) (*session, golibvirt.Domain, error) {
	s, err := ds.connection.reads()
	if err != nil {
		return nil, golibvirt.Domain{}, err
	}
	dom, err := lookup(ctx, s, id)
	return s, dom, err
}

func lookup(ctx context.Context, s *session, id string) (golibvirt.Domain, error) {
	dom, err := handle(id)
	if err != nil {
		return dom, err
	}
	dom, err = call(ctx, s, func(lv *golibvirt.Libvirt) (golibvirt.Domain, error) {
		return lv.DomainLookupByUUID(dom.UUID)
	})
	if err != nil {
		return dom, fmt.Errorf("look up domain %s: %w", id, err)
	}
	return dom, nil
}

func (ds *domains) RunState(ctx context.Context, id string) (hv.RunState, error) {
	s, err := ds.connection.reads()
	if err != nil {
		return hv.RunState{}, fmt.Errorf("read the state of domain %s: %w", id, err)
	}
	dom, err := handle(id)
	if err != nil {
		return hv.RunState{}, err
	}
	facts, err := call(ctx, s, func(lv *golibvirt.Libvirt) (*domainFacts, error) {
		f := &domainFacts{dom: dom}
		if err := f.gatherOccupied(lv); err != nil {
			return nil, err
		}
		return f, f.gatherState(lv)
	})
	if err != nil {
		return hv.RunState{}, fmt.Errorf("read the state of domain %s: %w", id, err)
	}
	state := hv.RunState{Occupied: facts.occupied}
	state.State, state.PauseReason = stateOf(facts.state, facts.reason)
	return state, nil
}

// readDomain reads a consistent description of a domain: state and XML come from separate calls,
// so it reads again if they contradict each other.
func (ds *domains) readDomain(ctx context.Context, s *session, dom golibvirt.Domain) (*hv.Domain, *domainFacts, error) {
	for range maxReads {
		facts, err := call(ctx, s, func(lv *golibvirt.Libvirt) (*domainFacts, error) {
			defer s.silent.while(ctx, domainID(dom))()
			return gather(lv, dom)
		})
		if err != nil {
			return nil, nil, fmt.Errorf("read domain %s: %w", domainID(dom), err)
		}
		known, err := ds.poolSourcesIn(ctx, facts.xml, facts.configXML)
		if err != nil {
			return nil, nil, fmt.Errorf("read domain %s: %w", domainID(dom), err)
		}
		d, consistent, err := facts.domain(known, ds.clusters)
		if err != nil {
			return nil, nil, fmt.Errorf("read domain %s: %w", domainID(dom), err)
		}
		if consistent {
			return d, facts, nil
		}
	}
	return nil, nil, fmt.Errorf("read domain %s: %w: its state keeps changing", domainID(dom), hv.ErrBusy)
}

// addFiles adds the files in these descriptions of a domain and in its managed save image: a start
// needs them.
func addFiles(ctx context.Context, s *session, dom golibvirt.Domain, d *hv.Domain, docs ...string) {
	if d.ManagedSave {
		saved, err := call(ctx, s, func(lv *golibvirt.Libvirt) (string, error) {
			defer s.silent.while(ctx, d.ID)()
			return lv.DomainManagedSaveGetXMLDesc(dom, 0)
		})
		if err != nil {
			d.FilesUnknown = fmt.Sprintf("its managed save image cannot be read: %v", err)
		}
		docs = append(docs, saved)
	}
	for _, doc := range docs {
		named, err := domainfiles.Named(doc)
		if err != nil {
			d.FilesUnknown = err.Error()
		}
		for _, file := range named {
			if file := hv.DomainFile(file); !slices.Contains(d.Files, file) {
				d.Files = append(d.Files, file)
			}
		}
	}
}
